#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>

#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "tune/cluster.h"

namespace sluice::tune {
namespace {

constexpr int kMostPerNode = 1'000'000;

void require(bool ok, const std::string& what) {
  if (!ok) throw ConfigError(what);
}

bool is_amount(double value) { return std::isfinite(value) && value >= 0; }

void check_cluster_link(const LinkCost& link, std::string_view where) {
  require(!link.bytes_per_s || *link.bytes_per_s > 0,
          concat("the bandwidth of the link ", where, " is ", link.bytes_per_s.value_or(0),
                 " bytes/s; it must be more than 0"));
  require(is_amount(link.latency_s),
          concat("the latency of the link ", where, " is ", link.latency_s, " s; it must be 0 or more"));
}

void check_cluster(const Cluster& cluster) {
  require(cluster.devices_per_node >= 1 && cluster.devices_per_node <= kMostPerNode,
          concat("a node has ", cluster.devices_per_node, " devices; it must have 1 to ", kMostPerNode));
  check_cluster_link(cluster.inside, "inside a node");
  check_cluster_link(cluster.between, "between nodes");
  require(is_amount(cluster.noise), concat("the noise of a step is ", cluster.noise, "; it must be 0 or more"));
}

void check_numbers(const PlanRequest& request) {
  require(request.devices >= 1 && request.replicas >= 1 && request.plan.chunks >= 1 && request.plan.virtual_stages >= 1,
          concat("a replica has ", request.devices, " devices with ", request.plan.virtual_stages, " stages each and ",
                 request.plan.chunks, " chunks, and there are ", request.replicas,
                 " of them; each number must be at least 1"));
  require(std::int64_t{request.devices} * request.replicas <= kMostDevices,
          concat(counted(request.replicas, "replica"), " of ", counted(request.devices, "device"), " are more than ",
                 kMostDevices, " devices; ask for fewer"));
  require(static_cast<double>(request.plan.global_batch) >=
              static_cast<double>(request.replicas) * static_cast<double>(request.plan.chunks),
          concat("a global batch of ", request.plan.global_batch, " is less than a sample for each of ",
                 request.plan.chunks, " chunks of ", counted(request.replicas, "replica"), "; raise it"));
}

void check_stages(const PlanRequest& request) {
  const int trained = request.layers - request.plan.frozen_layers;
  require(request.plan.frozen_layers >= 0 && trained >= 1, concat(request.plan.frozen_layers, " of ", request.layers,
                                                                  " layers are frozen; at least one must be trained"));
  const std::int64_t stages = std::int64_t{request.devices} * request.plan.virtual_stages;
  require(stages <= trained, concat("the pipeline has ", counted(stages, "stage"), ", but only ",
                                    counted(trained, "layer"), " to train; ask for fewer stages"));
  if (!request.partition) return;
  const std::vector<int>& cut = request.partition->layers_per_stage;
  const bool fits = static_cast<std::int64_t>(cut.size()) == stages && std::ranges::min(cut) >= 1 &&
                    std::accumulate(cut.begin(), cut.end(), std::int64_t{0}) == trained;
  require(fits, concat("the partition must have ", counted(stages, "stage"), " of ", counted(trained, "layer"),
                       " in all, each of at least one"));
}

void check_layers(const ClusterRun& run) {
  require(static_cast<int>(run.layers.size()) == run.request.layers,
          concat("there are costs of ", counted(static_cast<int>(run.layers.size()), "layer"), ", but the model has ",
                 run.request.layers));
  const double micro_batch = run.request.mean_micro_batch(run.request.plan.chunks);
  double sum = 0;
  for (std::size_t i = 0; i < run.layers.size(); ++i) {
    const LayerCost& layer = run.layers[i];
    for (const double seconds : {layer.forward.at(micro_batch), layer.input_gradient.at(micro_batch),
                                 layer.weight_gradient.at(micro_batch), layer.backward_seconds(micro_batch)})
      require(is_amount(seconds), concat("layer ", i, " takes ", seconds, " s; measure its costs anew"));
    sum += layer.seconds(micro_batch);
  }
  require(sum > 0, "the layers take no time; measure their costs");
}

void check_overheads(const StepOverheads& overheads) {
  for (const double amount : {overheads.bucket_bytes, overheads.sent_share, overheads.frozen_share})
    require(is_amount(amount), concat("the bytes of a bucket, what is sent of them and the share of frozen layers are ",
                                      overheads.bucket_bytes, ", ", overheads.sent_share, " and ",
                                      overheads.frozen_share, "; each must be 0 or more"));
  const AffineCost update = overheads.update.value_or(AffineCost{});
  require(is_amount(update.a_s) && is_amount(update.b_s),
          concat("an update takes ", update.a_s, " s and ", update.b_s, " s a byte; each must be 0 or more"));
  require(overheads.updaters >= 1, concat(overheads.updaters, " replicas share an update; it must be at least 1"));
}

}  // namespace

void check_cluster_run(const ClusterRun& run) {
  check_cluster(run.cluster);
  check_numbers(run.request);
  check_stages(run.request);
  check_layers(run);
  check_overheads(run.overheads);
}

}  // namespace sluice::tune
