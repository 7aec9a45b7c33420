#include "tune/predict.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "core/check.h"
#include "core/ids.h"
#include "pipeline/schedule/inspect.h"
#include "pipeline/schedule/plan_schedule.h"
#include "tune/contention.h"
#include "tune/expected_maximum.h"

namespace sluice::tune {
namespace {

using pipeline::Schedule;
using pipeline::Simulation;

void slow_down(std::vector<pipeline::StepCost>& stages, const Schedule& schedule, const std::vector<double>& slowness) {
  if (slowness.empty()) return;
  const std::vector<int> owners = pipeline::stage_owners(schedule);
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const double factor = slowness.at(owners[s]);
    pipeline::StepCost& stage = stages[s];
    for (double* const time :
         {&stage.forward, &stage.input, &stage.weight, &stage.first_forward, &stage.first_backward})
      *time *= factor;
    if (stage.backward) *stage.backward *= factor;
  }
}

Simulation simulate_compute(const pipeline::Simulator& simulator, const StepCosts& costs) {
  pipeline::Costs times{.stages = costs.stages, .sent_bytes = costs.sent_bytes};
  slow_down(times.stages, simulator.schedule(), costs.overheads.slowness);
  for (const LinkCost& border : costs.overheads.borders) {
    pipeline::Link& link = times.links.emplace_back(pipeline::Link{.latency = border.latency_s});
    if (border.bytes_per_s) link.bytes_per_time = *border.bytes_per_s;
  }
  return simulate_contention(simulator, times,
                             {.slowdowns = costs.slowdowns,
                              .contenders = costs.overheads.contenders,
                              .replicas = costs.overheads.replicas_on_machine,
                              .runnable = costs.overheads.runnable});
}

StageGradients gradients_of(const StageGradients& all, const std::vector<int>& stages) {
  StageGradients some(all.size());
  for (const int stage : stages) some.at(stage) = all.at(stage);
  return some;
}

double end_of_reductions(const Schedule& schedule, const Simulation& simulation, const StepCosts& costs,
                         const ReductionCosts& bucket) {
  double end = 0;
  const auto add = [&](const StageGradients& gradients) {
    for (const Reduction& sum : reductions_of(schedule, simulation, gradients, bucket)) end = std::max(end, sum.end);
  };
  if (costs.overheads.networks.empty()) add(costs.gradients);
  for (const std::vector<int>& stages : costs.overheads.networks) add(gradients_of(costs.gradients, stages));
  return end;
}

double all_trained_bytes(const StepCosts& costs) {
  double bytes = 0;
  for (std::size_t s = 0; s < costs.gradients.size(); ++s) bytes += costs.trained_bytes(s);
  return bytes;
}

// The part of a worker's push after its compute. Buckets follow each other without waiting for a reply.
double pushing_after(const Schedule& schedule, const Simulation& compute, const StepCosts& costs,
                     const ServerUse& server) {
  LinkCost link = server.push_link();
  link.latency_s = 0;
  if (!server.goes_ahead) return link.transfer(all_trained_bytes(costs));
  const ReductionCosts bucket{link, costs.overheads.bucket_bytes};
  return std::max(0.0, end_of_reductions(schedule, compute, costs, bucket) - compute.makespan);
}

std::vector<double> updates_of(const Schedule& schedule, const StepCosts& costs) {
  std::vector<double> seconds(schedule.devices.size(), 0.0);
  if (!costs.overheads.update) return seconds;
  const std::vector<int> owners = pipeline::stage_owners(schedule);
  for (std::size_t s = 0; s < costs.gradients.size(); ++s) {
    const double share = costs.trained_bytes(s) / costs.overheads.updaters;
    if (share > 0) seconds[owners[s]] += costs.overheads.update->at(share);
  }
  // All devices of all replicas update at once, limited by the cores.
  const double all = std::accumulate(seconds.begin(), seconds.end(), 0.0) * costs.overheads.replicas_on_machine;
  const double longest = std::ranges::max(seconds);
  const double slowed = longest > 0 ? std::max(1.0, all / costs.overheads.runnable / longest) : 1;
  for (double& own : seconds) own *= slowed;
  return seconds;
}

// computing: the worker's time until its last gradient is complete.
void add_server(const Schedule& schedule, const Simulation& compute, const StepCosts& costs, double computing,
                StepPrediction& step) {
  const StepOverheads& overheads = costs.overheads;
  const ServerUse& server = *overheads.server;
  // A worker reads its batch itself after the push.
  const double loading = overheads.loading ? overheads.loading->samples * overheads.loading->cost.sample_s : 0;
  step.served =
      served_step(server, {.computing = computing,
                           .pushing = pushing_after(schedule, compute, costs, server),
                           .bytes = all_trained_bytes(costs),
                           .loading = loading,
                           .slowest = expected_maximum(server.workers) * server.deviation * compute.makespan});
  step.seconds = computing + step.served->seconds();
  step.update = step.served->update;
  step.load = step.served->load;
  step.all_reduce += step.served->push + step.served->pull + step.served->wait;
}

// updates: [device]; if empty, all devices wait for the server's update. slows: time that loading adds to the compute
// of each device.
void add_devices(const Simulation& compute, const StepCosts& costs, const std::vector<double>& updates, double slows,
                 StepPrediction& step) {
  for (std::size_t device = 0; device < compute.devices.size(); ++device) {
    const auto& [start, end, busy, idle] = compute.devices[device];
    const double update = updates.empty() ? step.update : updates[device];
    step.devices.push_back({.compute = costs.frozen_s + busy + slows,
                            .all_reduce = step.all_reduce,
                            .update = update,
                            .load = step.load,
                            .bubble = idle + step.update - update,
                            .other = costs.overheads.other_s});
  }
}

}  // namespace

double StepCosts::trained_bytes(std::size_t stage) const {
  double bytes = 0;
  for (const LayerGradients& layer : gradients.at(stage)) bytes += layer.bytes;
  return bytes;
}

StepPrediction predict_step(const Schedule& schedule, const StepCosts& costs) {
  return predict_step(pipeline::Simulator(schedule), costs);
}

StepPrediction predict_step(const pipeline::Simulator& simulator, const StepCosts& costs) {
  const Schedule& schedule = simulator.schedule();
  const Simulation compute = simulate_compute(simulator, costs);
  const StepOverheads& overheads = costs.overheads;
  StepPrediction step;
  if (overheads.all_reduce) {
    const ReductionCosts bucket{*overheads.all_reduce, overheads.bucket_bytes, overheads.sent_share};
    step.all_reduce = std::max(0.0, end_of_reductions(schedule, compute, costs, bucket) - compute.makespan);
  }
  if (overheads.deviation > 0 && overheads.replicas > 1)
    step.all_reduce += expected_maximum(overheads.replicas) * overheads.deviation * compute.makespan;
  const double computing = costs.frozen_s + compute.makespan + step.all_reduce + overheads.other_s;
  if (overheads.server) {
    add_server(schedule, compute, costs, computing, step);
    add_devices(compute, costs, /*updates=*/{}, /*slows=*/0, step);
    return step;
  }
  const std::vector<double> updates = updates_of(schedule, costs);
  step.update = std::ranges::max(updates);
  step.seconds = computing + step.update;
  const LoadTimes loading = overheads.loading ? load_times(*overheads.loading, step.seconds) : LoadTimes();
  step.load = loading.waits;
  step.seconds += loading.slows + loading.waits;
  add_devices(compute, costs, updates, loading.slows, step);
  return step;
}

StepCosts step_costs(const Plan& plan, std::span<const LayerCost> layers, double replica_samples,
                     const StepOverheads& overheads) {
  const double micro_batch = replica_samples / plan.chunks;
  StepCosts costs =
      step_costs(layers.subspan(plan.frozen_layers), plan.partition, plan.recompute, micro_batch, overheads);
  costs.frozen_s = frozen_seconds(plan, layers, micro_batch, overheads);
  return costs;
}

StepPrediction predict_step(const Plan& plan, std::span<const LayerCost> layers, double replica_samples,
                            const StepOverheads& overheads) {
  return predict_step(pipeline::make_train_schedule(plan, plan.chunks),
                      step_costs(plan, layers, replica_samples, overheads));
}

double frozen_seconds(const Plan& plan, std::span<const LayerCost> layers, double micro_batch,
                      const StepOverheads& overheads) {
  double seconds = 0;
  for (const LayerCost& layer : layers.first(plan.frozen_layers))
    seconds += overheads.frozen_share * layer.forward.at(micro_batch) * plan.chunks / plan.devices();
  const double devices = static_cast<double>(plan.devices()) * overheads.replicas_on_machine;
  const double slowest = overheads.slowness.empty() ? 1 : std::ranges::max(overheads.slowness);
  return seconds * slowest * Contention{.slowdowns = {}, .runnable = overheads.runnable}.waiting(devices);
}

StepCosts step_costs(std::span<const LayerCost> layers, const Partition& partition, const std::vector<bool>& recompute,
                     double micro_batch, const StepOverheads& overheads) {
  StepCosts costs{.overheads = overheads};
  std::size_t layer = 0;
  for (std::size_t s = 0; s < partition.layers_per_stage.size(); ++s) {
    pipeline::StepCost& stage =
        costs.stages.emplace_back(pipeline::StepCost{.forward = 0, .input = 0, .weight = 0, .backward = 0.0});
    double slowed = 0;
    std::vector<LayerGradients>& gradients = costs.gradients.emplace_back();
    const bool recomputes = !recompute.empty() && recompute[s];
    for (int i = 0; i < partition.layers_per_stage[s]; ++i, ++layer) {
      check(layer < layers.size(), "a partition with at most as many layers as the model");
      const LayerCost& cost = layers[layer];
      const double forward = cost.forward.at(micro_batch);
      const double input = cost.input_gradient.at(micro_batch) + (recomputes ? forward : 0);
      const double weight = cost.weight_gradient.at(micro_batch);
      const double backward = cost.backward_seconds(micro_batch) + (recomputes ? forward : 0);
      stage.forward += forward;
      stage.input += input;
      stage.weight += weight;
      *stage.backward += backward;
      stage.first_forward += cost.first_forward_s;
      stage.first_backward += cost.first_backward_s;
      slowed += (forward + backward) * cost.slowdown;
      gradients.push_back({static_cast<double>(cost.gradient_bytes), backward, weight});
    }
    std::ranges::reverse(gradients);
    const double alone = stage.forward + *stage.backward;
    costs.slowdowns.push_back(alone > 0 ? slowed / alone : 1);
    costs.sent_bytes.push_back(layer == 0 ? 0 : static_cast<double>(layers[layer - 1].output_bytes) * micro_batch);
  }
  check(layer == layers.size(), "a partition that covers every layer");
  return costs;
}

}  // namespace sluice::tune
