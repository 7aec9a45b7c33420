#include "tune/predict.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "core/check.h"
#include "core/ids.h"
#include "pipeline/schedule/inspect.h"
#include "pipeline/schedule/plan_schedule.h"

namespace sluice::tune {
namespace {

using pipeline::Schedule;
using pipeline::Simulation;

Simulation simulate_compute(const Schedule& schedule, const StepCosts& costs) {
  pipeline::Costs times{.stages = costs.stages, .sent_bytes = costs.sent_bytes};
  for (const LinkCost& border : costs.overheads.borders) {
    pipeline::Link& link = times.links.emplace_back(pipeline::Link{.latency = border.latency_s});
    if (border.bytes_per_s) link.bytes_per_time = *border.bytes_per_s;
  }
  return pipeline::simulate(schedule, times);
}

// The sum of a stage's gradients may begin: all of them are whole.
struct Reduction {
  double ready = 0;
  double bytes = 0;
};

// In the order in which they may begin.
std::vector<Reduction> reductions_of(const Schedule& schedule, const Simulation& simulation, const StepCosts& costs) {
  std::vector<Reduction> of_stages(costs.stages.size());
  for (std::size_t device = 0; device < schedule.devices.size(); ++device) {
    for (std::size_t i = 0; i < schedule.devices[device].size(); ++i) {
      Reduction& stage = of_stages[static_cast<std::size_t>(index(schedule.devices[device][i].stage))];
      stage.ready = std::max(stage.ready, simulation.spans[device][i].end);
    }
  }
  for (std::size_t s = 0; s < costs.trained_bytes.size(); ++s) of_stages[s].bytes = costs.trained_bytes[s];
  std::erase_if(of_stages, [](const Reduction& stage) { return stage.bytes <= 0; });
  std::ranges::stable_sort(of_stages, {}, &Reduction::ready);
  return of_stages;
}

// When the last sum has ended. The network carries one stage's bytes after another's; the buckets of a stage follow one
// another, each with its latency, in which the network is free for the other stages.
double end_of_reductions(const std::vector<Reduction>& reductions, const StepOverheads& overheads) {
  double network_free = 0, end = 0;
  for (const auto& [ready, bytes] : reductions) {
    const double buckets = overheads.bucket_bytes > 0 ? std::ceil(bytes / overheads.bucket_bytes) : 1;
    network_free = std::max(network_free, ready) + overheads.all_reduce->transfer(bytes * overheads.sent_share);
    end = std::max(end, network_free + buckets * overheads.all_reduce->latency_s);
  }
  return end;
}

// [device]
std::vector<double> updates_of(const Schedule& schedule, const StepCosts& costs) {
  std::vector<double> seconds(schedule.devices.size(), 0.0);
  if (!costs.overheads.update) return seconds;
  const std::vector<int> owners = pipeline::stage_owners(schedule);
  for (std::size_t s = 0; s < costs.trained_bytes.size(); ++s) {
    const double share = costs.trained_bytes[s] / costs.overheads.updaters;
    if (share > 0) seconds[owners[s]] += costs.overheads.update->at(share);
  }
  return seconds;
}

}  // namespace

StepPrediction predict_step(const Schedule& schedule, const StepCosts& costs) {
  const Simulation compute = simulate_compute(schedule, costs);
  StepPrediction step;
  if (costs.overheads.all_reduce) {
    const double end = end_of_reductions(reductions_of(schedule, compute, costs), costs.overheads);
    step.all_reduce = std::max(0.0, end - compute.makespan);
  }
  const std::vector<double> updates = updates_of(schedule, costs);
  step.update = std::ranges::max(updates);
  step.seconds = costs.frozen_s + compute.makespan + step.all_reduce + step.update;
  for (std::size_t device = 0; device < updates.size(); ++device) {
    const auto& [start, end, busy, idle] = compute.devices[device];
    step.devices.push_back({.compute = costs.frozen_s + busy,
                            .all_reduce = step.all_reduce,
                            .update = updates[device],
                            .bubble = idle + step.update - updates[device]});
  }
  return step;
}

StepPrediction predict_step(const Plan& plan, std::span<const LayerCost> layers, double replica_samples,
                            const StepOverheads& overheads) {
  const double micro_batch = replica_samples / plan.chunks;
  StepCosts costs =
      step_costs(layers.subspan(plan.frozen_layers), plan.partition, plan.recompute, micro_batch, overheads);
  for (const LayerCost& layer : layers.first(plan.frozen_layers))
    costs.frozen_s += overheads.frozen_share * layer.forward.at(micro_batch) * plan.chunks / plan.devices();
  return predict_step(pipeline::make_train_schedule(plan, plan.chunks), costs);
}

StepCosts step_costs(std::span<const LayerCost> layers, const Partition& partition, const std::vector<bool>& recompute,
                     double micro_batch, const StepOverheads& overheads) {
  StepCosts costs{.overheads = overheads};
  std::size_t layer = 0;
  for (std::size_t s = 0; s < partition.layers_per_stage.size(); ++s) {
    pipeline::StepCost& stage = costs.stages.emplace_back(pipeline::StepCost{.forward = 0, .input = 0, .weight = 0});
    double& trained = costs.trained_bytes.emplace_back(0.0);
    for (int i = 0; i < partition.layers_per_stage[s]; ++i, ++layer) {
      check(layer < layers.size(), "the partition has no more layers than there are");
      stage.forward += layers[layer].forward.at(micro_batch);
      stage.input += layers[layer].input_gradient.at(micro_batch);
      stage.weight += layers[layer].weight_gradient.at(micro_batch);
      trained += static_cast<double>(layers[layer].gradient_bytes);
    }
    if (!recompute.empty() && recompute[s]) stage.input += stage.forward;
    costs.sent_bytes.push_back(layer == 0 ? 0 : static_cast<double>(layers[layer - 1].output_bytes) * micro_batch);
  }
  check(layer == layers.size(), "the partition covers every layer");
  return costs;
}

}  // namespace sluice::tune
