#include "tune/cluster.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <utility>

#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "pipeline/schedule/inspect.h"
#include "pipeline/schedule/plan_schedule.h"
#include "tune/expected_maximum.h"
#include "tune/partition.h"

namespace sluice::tune {
namespace {

constexpr double kMostActions = 2e7;  // a forward and a backward per stage and chunk

StepOverheads without_links(StepOverheads overheads) {
  overheads.borders.clear();
  overheads.all_reduce.reset();
  overheads.networks.clear();
  return overheads;
}

// Only devices of one node slow each other down, but predict_step() applies contention to all devices of a replica. If
// a replica spans several nodes, this reduces the contention of each device accordingly.
void keep_contention_in_nodes(StepOverheads& overheads, const Placement& placement) {
  const int devices = placement.devices, per_node = placement.devices_per_node;
  overheads.replicas_on_machine = std::max(1, std::min(placement.replicas, per_node / devices));
  if (devices <= per_node) return;
  overheads.runnable *= static_cast<double>(devices) / per_node;
  const double others = static_cast<double>(overheads.contenders - 1) * (devices - 1);
  overheads.contenders = per_node == 1 ? 1 : 1 + static_cast<int>(std::lround(others / (per_node - 1)));
}

// One device trains the whole model. Each additional micro-batch adds the same time to its step.
double one_device_per_s(const ClusterRun& run) {
  const PlanRequest& request = run.request;
  StepOverheads overheads = without_links(run.overheads);
  overheads.contenders = overheads.replicas_on_machine = overheads.updaters = 1;
  Plan plan{.partition = {{request.layers - request.plan.frozen_layers}}, .frozen_layers = request.plan.frozen_layers};
  if (request.recompute == Recompute::kLayer) plan.recompute = {true};
  const double micro_batch = request.mean_micro_batch(request.plan.chunks);
  const auto seconds = [&](int chunks) {
    plan.chunks = chunks;
    return predict_step(plan, run.layers, micro_batch * chunks, overheads).seconds;
  };
  const double first = seconds(1), next = seconds(2) - first;
  const double chunks =
      static_cast<double>(request.plan.chunks) * (run.scaling == Scaling::kStrong ? request.replicas : 1);
  return micro_batch * chunks / (first + (chunks - 1) * next);
}

DevicePrediction mean_device(const StepPrediction& step) {
  DevicePrediction mean;
  const auto devices = static_cast<double>(step.devices.size());
  for (const DevicePrediction& device : step.devices) {
    mean.compute += device.compute / devices;
    mean.update += device.update / devices;
    mean.bubble += device.bubble / devices;
  }
  return mean;
}

class ClusterPredictor {
 public:
  explicit ClusterPredictor(const ClusterRun& run)
      : run_(run), owners_(pipeline::stage_owners(schedule(run.request.uncut(), run.request.plan.chunks))) {
    StepOverheads overheads = without_links(run.overheads);
    overheads.borders = border_costs(owners_, 0, run.cluster);
    plan_ = run.request.uncut();
    const Cut cut = best_cut(std::span(run.layers).subspan(plan_.frozen_layers), schedule(plan_, plan_.chunks),
                             cut_rules(run.request, plan_.chunks, overheads));
    plan_.partition = cut.partition;
    plan_.recompute = cut.recompute;
    fits_ = cut.fits;
  }

  [[nodiscard]] const Plan& plan() const { return plan_; }
  [[nodiscard]] bool fits() const { return fits_; }

  [[nodiscard]] ClusterStep step(int devices) {
    ClusterStep step = shape(devices);
    Plan plan = plan_;
    plan.chunks = step.chunks;
    const pipeline::Schedule& order = schedule(plan, step.chunks);
    const Placement placement{run_.request.devices, step.replicas, run_.cluster.devices_per_node};
    step.nodes = placement.nodes();
    StepCosts costs = step_costs(plan, run_.layers, step.samples / step.replicas, without_links(run_.overheads));
    keep_contention_in_nodes(costs.overheads, placement);
    const StepPrediction alone = predict_step(order, costs);
    const StepPrediction slowest = slowest_replica(order, costs, placement);
    const DevicePrediction mean = mean_device(alone);
    step.compute = mean.compute;
    step.bubble = mean.bubble;
    step.update = mean.update;
    step.all_reduce = slowest.all_reduce;
    const double of_replica = slowest.seconds - slowest.all_reduce;
    step.borders = of_replica - alone.seconds;
    step.stragglers = run_.cluster.noise * expected_maximum(step.replicas) * of_replica;
    step.seconds = slowest.seconds + step.stragglers;
    return step;
  }

 private:
  [[nodiscard]] ClusterStep shape(int devices) const {
    const PlanRequest& request = run_.request;
    if (devices < 1 || devices > kMostDevices)
      throw ConfigError(
          concat("cannot simulate a cluster of ", counted(devices, "device"), "; choose 1 to ", kMostDevices));
    if (devices % request.devices != 0)
      throw ConfigError("a cluster of ", counted(devices, "device"), " cannot be divided into replicas of ",
                        request.devices, "; choose a multiple of ", request.devices);
    ClusterStep step{.devices = devices, .replicas = devices / request.devices, .chunks = request.plan.chunks};
    step.samples = static_cast<double>(request.plan.global_batch);
    const double growth = static_cast<double>(step.replicas) / request.replicas;
    if (run_.scaling == Scaling::kWeak) {
      step.samples *= growth;
      return step;
    }
    const double chunks = std::max(1.0, std::round(step.chunks / growth));
    if (2 * chunks * request.stages() > kMostActions) {
      throw ConfigError("a replica of a cluster of ", counted(devices, "device"), " has ", fixed(chunks, 0),
                        " chunks, too many to predict; ask for more devices or larger micro-batches");
    }
    step.chunks = static_cast<int>(chunks);
    if (step.samples < static_cast<double>(step.replicas) * step.chunks) {
      throw ConfigError("a global batch of ", request.plan.global_batch, " has no sample for each of ", step.chunks,
                        " chunks of ", step.replicas, " replicas; raise it or ask for fewer devices");
    }
    return step;
  }

  [[nodiscard]] StepPrediction slowest_replica(const pipeline::Schedule& order, StepCosts costs,
                                               const Placement& placement) const {
    costs.overheads.all_reduce = sum_cost(placement, run_.cluster);
    costs.overheads.networks = shared_networks(owners_, placement);
    StepPrediction slowest;
    for (const int offset : placement.offsets()) {
      costs.overheads.borders = border_costs(owners_, offset, run_.cluster);
      StepPrediction step = predict_step(order, costs);
      if (step.seconds > slowest.seconds) slowest = std::move(step);
    }
    return slowest;
  }

  const pipeline::Schedule& schedule(const Plan& plan, int chunks) {
    const auto found = schedules_.find(chunks);
    if (found != schedules_.end()) return found->second;
    return schedules_.emplace(chunks, pipeline::make_train_schedule(plan, chunks)).first->second;
  }

  const ClusterRun& run_;
  std::map<int, pipeline::Schedule> schedules_;
  std::vector<int> owners_;
  Plan plan_;
  bool fits_ = true;
};

}  // namespace

ClusterPrediction predict_cluster(const ClusterRun& run, std::span<const int> devices) {
  check_cluster_run(run);
  if (devices.empty()) throw ConfigError("the list of cluster sizes is empty; give at least one number of devices");
  ClusterPredictor predictor(run);
  ClusterPrediction found{
      .plan = predictor.plan(), .fits = predictor.fits(), .one_device_per_s = one_device_per_s(run)};
  for (const int count : devices) {
    ClusterStep& step = found.steps.emplace_back(predictor.step(count));
    step.efficiency = step.samples_per_s() / step.devices / found.one_device_per_s;
  }
  const double smallest = std::ranges::min_element(found.steps, {}, &ClusterStep::devices)->efficiency;
  for (ClusterStep& step : found.steps) step.efficiency_to_smallest = step.efficiency / smallest;
  return found;
}

}  // namespace sluice::tune
