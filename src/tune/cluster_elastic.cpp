#include "tune/cluster_elastic.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "tune/memory_model.h"

namespace sluice::tune {
namespace {

struct NodeShape {
  int devices = 1;
  int replicas = 1;
};

class ElasticEpochs {
 public:
  ElasticEpochs(const ClusterRun& run, const ElasticRules& rules)
      : run_(run),
        rules_(rules),
        first_{run.request.devices, run.request.plan.replicas},
        nodes_(run.request.replicas / run.request.plan.replicas),
        now_(first_) {}

  ElasticEpoch next(int frozen_layers) {
    // As in a run, the shape changes only when other layers freeze; otherwise the present shape is kept.
    changes_ = frozen_layers != std::exchange(frozen_layers_, frozen_layers);
    auto [stay, best] = shapes(frozen_layers, /*needs_room=*/true);
    const bool fits = best.has_value();
    if (!fits) stay = best = shapes(frozen_layers, /*needs_room=*/false).stay;
    if (!best) {
      throw ConfigError("with ", frozen_layers, " of ", run_.request.layers, " layers frozen, no pipeline of up to ",
                        counted(first_.devices, "device"), " can run the schedule ", run_.request.plan.schedule,
                        "; freeze fewer layers or choose the schedule 1f1b");
    }
    if (!stay) stay = best;
    // Time saved on the samples of one present step.
    const double won = stay->epoch.seconds * (1 - stay->epoch.samples_per_s / best->epoch.samples_per_s);
    Found& chosen = won * rules_.steps > rules_.change_s ? *best : *stay;
    now_ = chosen.shape;
    chosen.epoch.fits = fits;
    return chosen.epoch;
  }

 private:
  struct Found {
    NodeShape shape;
    ElasticEpoch epoch;
  };
  struct FoundShapes {
    std::optional<Found> stay, best;
  };

  [[nodiscard]] FoundShapes shapes(int frozen_layers, bool needs_room) const {
    FoundShapes found;
    // If too few layers are left for the present shape, use the next smaller one.
    for (int devices = now_.devices; devices >= 1 && !found.stay; --devices)
      found.stay = try_shape({devices, now_.replicas}, frozen_layers, needs_room);
    found.best = found.stay;
    for (int devices = changes_ && rules_.may_shrink ? first_.devices : 0; devices >= 1; --devices) {
      const int replicas = rules_.may_replicate ? first_.devices * first_.replicas / devices : first_.replicas;
      const auto other = try_shape({devices, replicas}, frozen_layers, needs_room);
      if (other && (!found.best || other->epoch.samples_per_s > found.best->epoch.samples_per_s)) found.best = other;
    }
    return found;
  }

  // Empty if the shape cannot run or does not fit.
  [[nodiscard]] std::optional<Found> try_shape(const NodeShape& shape, int frozen_layers, bool needs_room) const {
    ClusterRun run = run_;
    run.request.devices = shape.devices;
    run.request.plan.frozen_layers = frozen_layers;
    run.request.partition.reset();
    run.cluster.devices_per_node = shape.devices * shape.replicas;
    if (run.request.stages() > run.request.layers - frozen_layers) return std::nullopt;
    try {
      const std::array devices{run.cluster.devices_per_node * nodes_};
      const ClusterPrediction found = predict_cluster(run, devices);
      const ClusterStep& step = found.steps.front();
      if (needs_room && run.request.memory_limit > 0 && bytes_of(found.plan, shape, step) > run.request.memory_limit)
        return std::nullopt;
      return Found{shape,
                   {.frozen_layers = frozen_layers,
                    .devices = shape.devices,
                    .replicas = step.replicas,
                    .chunks = step.chunks,
                    .seconds = step.seconds,
                    .samples_per_s = step.samples_per_s()}};
    } catch (const ConfigError&) {
      return std::nullopt;
    }
  }

  [[nodiscard]] std::uint64_t bytes_of(Plan plan, const NodeShape& shape, const ClusterStep& step) const {
    plan.chunks = step.chunks;
    plan.replicas = shape.replicas;
    plan.global_batch = std::llround(step.samples);
    return estimate_bytes({run_.layers, run_.request.shares_memory, nodes_}, plan).value_or(0);
  }

  const ClusterRun& run_;
  const ElasticRules& rules_;
  NodeShape first_;
  int nodes_;
  NodeShape now_;
  int frozen_layers_ = 0;
  bool changes_ = false;
};

void check_elastic_run(const ClusterRun& run, std::span<const int> frozen_layers) {
  check_cluster_run(run);
  const PlanRequest& request = run.request;
  const int local = request.plan.replicas;
  if (local < 1 || request.replicas % local != 0 ||
      std::int64_t{request.devices} * local > run.cluster.devices_per_node) {
    throw ConfigError("nodes of ", counted(run.cluster.devices_per_node, "device"), " cannot hold ",
                      counted(request.replicas, "replica"), " of ", counted(request.devices, "device"), " with ", local,
                      " on each node");
  }
  for (const int frozen : frozen_layers) {
    if (frozen < 0 || frozen >= request.layers) {
      throw ConfigError(frozen, " of ", counted(request.layers, "layer"),
                        " are frozen in an epoch; give 0 or more, and leave at least one layer to train");
    }
  }
}

}  // namespace

std::vector<ElasticEpoch> elastic_epochs(const ClusterRun& run, std::span<const int> frozen_layers,
                                         const ElasticRules& rules) {
  check_elastic_run(run, frozen_layers);
  const double baseline = ElasticEpochs(run, {.may_shrink = false}).next(0).samples_per_s;
  ElasticEpochs shapes(run, rules);
  std::vector<ElasticEpoch> epochs;
  for (const int frozen : frozen_layers) {
    ElasticEpoch& epoch = epochs.emplace_back(shapes.next(frozen));
    epoch.speedup = epoch.samples_per_s / baseline;
  }
  return epochs;
}

std::vector<ElasticRow> elastic_table(const ClusterRun& run, std::span<const int> frozen_layers,
                                      const ElasticRules& rules) {
  ElasticRules fixed = rules, shrinking = rules, replicating = rules;
  fixed.may_shrink = fixed.may_replicate = shrinking.may_replicate = false;
  shrinking.may_shrink = replicating.may_shrink = replicating.may_replicate = true;
  const std::vector<int> nothing(frozen_layers.size(), 0);
  std::vector<ElasticRow> rows{{"baseline", elastic_epochs(run, nothing, fixed)},
                               {"freeze only", elastic_epochs(run, frozen_layers, fixed)},
                               {"elastic pipeline", elastic_epochs(run, frozen_layers, shrinking)},
                               {"with AutoDP", elastic_epochs(run, frozen_layers, replicating)}};
  for (ElasticRow& row : rows) {
    double time = 0;
    for (const ElasticEpoch& epoch : row.epochs) time += 1 / epoch.speedup;
    if (time > 0) row.speedup = static_cast<double>(row.epochs.size()) / time;
  }
  return rows;
}

}  // namespace sluice::tune
