// predict: the time of one training step, and where it goes, from measured costs. Whoever estimates a step asks here:
// plans, the search for a cut, `sluice profile`, advice.
// Frozen layers come first: every device runs its share of the samples through them. Then the schedule's actions run in
// its own order (pipeline/schedule/simulate.h), with a hop wherever a result goes to another device. Buckets of
// gradients are summed over the replicas as soon as they are whole (reductions.h). When everything has ended, the
// weights are updated. A run hides more of an all-reduce where local replicas sum different stages at the same time.
// Devices of one machine slow each other down (contention.h): memory and, where they are more than the cores can run
// at once, cores; the latter in frozen layers and the update, too. So does loading (loading.h). Replicas wait for the
// slowest of them (expected_maximum.h). Of a worker of a parameter server a step is one of its cycles (server_step.h).
// Pure. Times in seconds.
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

// What a step costs besides the work of its layers. What is not known costs nothing.
struct StepOverheads {
  std::vector<LinkCost> borders;       // [stage]: an activation to the next one, and the gradient back; may be empty
  std::optional<LinkCost> all_reduce;  // of one bucket over all replicas; nothing: there is one
  // Each is of the stages whose buckets share it, one after another; networks do not slow each other. A stage may be in
  // several: then it waits for the slowest. Empty: all stages share one.
  std::vector<std::vector<int>> networks;
  double bucket_bytes = 0;           // of the largest bucket; 0: all gradients of a stage are one
  double sent_share = 1;             // of a gradient's bytes go over the network: half of them as bfloat16
  std::optional<AffineCost> update;  // of the weights, by their bytes
  int updaters = 1;                  // local replicas that share the update
  int contenders = 1;                // devices that ran together where LayerCost::slowdown was measured; 1: it was not
  // Replicas that compute at once on this machine; with a parameter server those of all its workers there.
  int replicas_on_machine = 1;
  // CPU devices that the machine's cores can run at once: cores / threads of a device. More of them share the cores.
  double runnable = std::numeric_limits<double>::infinity();
  double frozen_share = 1;         // of the samples run through the frozen layers; of the rest it is known
  std::optional<Loading> loading;  // nothing: batches are there
  // Of what a replica computes in a step, the standard deviation from step to step as a share of it; and how many
  // replicas wait for the slowest.
  double deviation = 0;
  int replicas = 1;
  double other_s = 0;  // a step, whatever the plan
  // With one the replicas are those of one of its workers. The server updates, so `update` is not read.
  std::optional<ServerUse> server;
};

// What the stages of a replica cost. Those of one micro-batch, where nothing else is said.
struct StepCosts {
  std::vector<pipeline::StepCost> stages;  // [stage]
  std::vector<double> sent_bytes;          // [stage]: to the next one; may be empty: nothing
  StageGradients gradients;                // to be summed once a step; may be empty: none
  std::vector<double> slowdowns;           // [stage]: beside `contenders` - 1 others (contention.h); may be empty: 1
  double frozen_s = 0;                     // a step, of each device: its share of the frozen layers' work
  StepOverheads overheads;

  [[nodiscard]] double trained_bytes(std::size_t stage) const;
};

// They add up to the step.
struct DevicePrediction {
  double compute = 0;
  double all_reduce = 0;  // that no device's compute hides, with waiting for the slowest replica. With a parameter
                          // server: push, pull and waiting (ServedStep)
  double update = 0;      // the parameter server's, where there is one
  double load = 0;        // waiting for the batch
  double bubble = 0;      // waiting for other devices
  double other = 0;       // StepOverheads::other_s
};

struct StepPrediction {
  double seconds = 0;
  double all_reduce = 0;  // that nothing hides: from the last action of any device to the last sum
  double update = 0;      // of the device with most weights
  double load = 0;        // waiting for the batch
  std::vector<DevicePrediction> devices;
  std::optional<ServedStep> served;  // of a worker of a parameter server: in all_reduce, update and load
};

// Requires: a validated training schedule; costs of its stages.
[[nodiscard]] StepPrediction predict_step(const pipeline::Schedule& schedule, const StepCosts& costs);
[[nodiscard]] StepPrediction predict_step(const pipeline::Simulator& simulator, const StepCosts& costs);

// layers: of the whole model, frozen ones too; replica_samples: of a step. Errors: ConfigError for a plan without
// schedule.
[[nodiscard]] StepCosts step_costs(const Plan& plan, std::span<const LayerCost> layers, double replica_samples,
                                   const StepOverheads& overheads = {});
[[nodiscard]] StepPrediction predict_step(const Plan& plan, std::span<const LayerCost> layers, double replica_samples,
                                          const StepOverheads& overheads = {});

// StepCosts::frozen_s of a plan: what its frozen layers take.
[[nodiscard]] double frozen_seconds(const Plan& plan, std::span<const LayerCost> layers, double micro_batch,
                                    const StepOverheads& overheads);

// With recomputation a backward takes one more forward. recompute: [stage]; empty: none does. Requires: a partition of
// all layers; so frozen ones are not among them.
[[nodiscard]] StepCosts step_costs(std::span<const LayerCost> layers, const Partition& partition,
                                   const std::vector<bool>& recompute, double micro_batch,
                                   const StepOverheads& overheads = {});

}  // namespace sluice::tune
