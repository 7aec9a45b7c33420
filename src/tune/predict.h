// predict: the time of one training step and its parts, from measured costs. Every device first runs its share of the
// samples through the frozen layers. The schedule's actions then run in their order (pipeline/schedule/simulate.h).
// Complete gradient buckets are all-reduced (reductions.h); the update follows.
// Devices of a machine share memory bandwidth and cores (contention.h), also with loader threads (loading.h). Replicas
// wait for the slowest (expected_maximum.h). For a parameter server's worker a step is one cycle (server_step.h). A
// real run hides more of an all-reduce if local replicas sum different stages at once. Pure. Times in seconds.
#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "core/layer_cost.h"
#include "core/link_cost.h"
#include "core/plan.h"
#include "pipeline/schedule/action.h"
#include "pipeline/schedule/simulate.h"
#include "tune/loading.h"
#include "tune/reductions.h"
#include "tune/server_step.h"

namespace sluice::tune {

// Costs of a step besides its layers. Unknown costs count as 0.
struct StepOverheads {
  // [stage]: activation to the next stage, and the gradient back; may be empty.
  std::vector<LinkCost> borders;
  std::optional<LinkCost> all_reduce;  // of one bucket over all replicas; empty: one replica
  // Each network is a list of stages whose buckets share it one after another; networks do not slow each other. A stage
  // in several networks waits for the slowest. Empty: all stages share one.
  std::vector<std::vector<int>> networks;
  double bucket_bytes = 0;  // largest bucket; 0: all gradients of a stage form one bucket
  double sent_share = 1;    // share of a gradient's bytes that is sent; 0.5 for bfloat16
  // [device]: factor on its layers' times, above 0; empty: 1. For search_plans() at least 1, because its lower bounds
  // leave it out.
  std::vector<double> slowness;
  std::optional<AffineCost> update;
  int updaters = 1;  // local replicas that share the update
  // Devices that ran together when LayerCost::slowdown was measured; 1: not measured.
  int contenders = 1;
  // Replicas that compute at once on this machine; with a parameter server, those of all its workers on this machine.
  int replicas_on_machine = 1;
  // CPU devices that the cores can run at once: cores / threads per device. More devices share the cores.
  double runnable = std::numeric_limits<double>::infinity();
  // Share of the samples that run through the frozen layers; the outputs of the rest are cached.
  double frozen_share = 1;
  std::optional<Loading> loading;  // empty: batches are ready in time
  // Relative standard deviation of a replica's compute from step to step, and the number of replicas that wait for the
  // slowest.
  double deviation = 0;
  int replicas = 1;
  double other_s = 0;
  // If set, the replicas belong to one worker of a parameter server. The server updates, so `update` is ignored.
  std::optional<ServerUse> server;
};

struct StepCosts {
  std::vector<pipeline::StepCost> stages;
  std::vector<double> sent_bytes;  // [stage]: to the next one; empty: nothing is sent
  StageGradients gradients;        // summed once per step; empty: none
  std::vector<double> slowdowns;   // [stage]: beside `contenders` - 1 other devices (contention.h); empty: 1
  double frozen_s = 0;
  StepOverheads overheads;

  [[nodiscard]] double trained_bytes(std::size_t stage) const;
};

// The parts add up to the step.
struct DevicePrediction {
  double compute = 0;
  // Exposed all-reduce and waiting for the slowest replica; with a server push, pull and waiting (ServedStep).
  double all_reduce = 0;
  double update = 0;  // by the parameter server if there is one
  double load = 0;
  double bubble = 0;  // waiting for other devices
  double other = 0;
};

struct StepPrediction {
  double seconds = 0;
  double all_reduce = 0;  // exposed: from the last action of any device to the last all-reduce
  double update = 0;      // of the device with the most weights
  double load = 0;
  std::vector<DevicePrediction> devices;
  // Set for a worker of a parameter server; its parts are included in all_reduce, update and load.
  std::optional<ServedStep> served;
};

// Requires: a validated training schedule; costs of its stages.
[[nodiscard]] StepPrediction predict_step(const pipeline::Schedule& schedule, const StepCosts& costs);
[[nodiscard]] StepPrediction predict_step(const pipeline::Simulator& simulator, const StepCosts& costs);

[[nodiscard]] StepCosts step_costs(const Plan& plan, std::span<const LayerCost> layers, double replica_samples,
                                   const StepOverheads& overheads = {});
[[nodiscard]] StepPrediction predict_step(const Plan& plan, std::span<const LayerCost> layers, double replica_samples,
                                          const StepOverheads& overheads = {});

[[nodiscard]] double frozen_seconds(const Plan& plan, std::span<const LayerCost> layers, double micro_batch,
                                    const StepOverheads& overheads);

// Recomputation adds a forward to each backward. recompute: [stage]; empty: none recomputes. Requires: `partition`
// covers `layers`, so `layers` excludes frozen ones.
[[nodiscard]] StepCosts step_costs(std::span<const LayerCost> layers, const Partition& partition,
                                   const std::vector<bool>& recompute, double micro_batch,
                                   const StepOverheads& overheads = {});

}  // namespace sluice::tune
