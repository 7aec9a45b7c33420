// make_plan: from what is asked for, and what layers and links cost, to a Plan. What the request leaves open, the cut
// and the recomputation, is decided here; a number of chunks that is open is raised where nothing fits the memory. Not
// here: measuring the costs (measure), the best number of chunks, which whole steps decide (chunk_trials.h).
// Pure, but that it says in the log what it chose with doubts. Times in seconds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/layer_cost.h"
#include "core/plan.h"
#include "tune/partition.h"
#include "tune/predict.h"

namespace sluice::tune {

struct PlanRequest {
  // What is settled: schedule, virtual stages, local replicas, chunks, global batch, frozen layers. Its partition and
  // recompute are decided here.
  Plan plan;
  int devices = 1;   // of a replica
  int replicas = 1;  // over all processes
  int layers = 1;    // of the model, frozen ones too
  bool chunks_are_open = false;
  std::optional<Partition> partition;  // nothing: any cut
  Recompute recompute = Recompute::kNone;
  std::vector<bool> recompute_of_stage;  // in the place of `recompute`; with a partition only
  std::uint64_t memory_limit = 0;        // bytes of a slot; 0: none
  bool shares_memory = true;             // device_bytes() (memory.h)

  [[nodiscard]] int stages() const { return devices * plan.virtual_stages; }
  // Samples of a micro-batch of a whole batch, in the mean, where a replica runs `chunks` of them.
  [[nodiscard]] double mean_micro_batch(int chunks) const {
    return static_cast<double>(plan.global_batch) / replicas / chunks;
  }
  // The plan with a layer in each stage: what devices, stages and schedule are, which no cut changes.
  [[nodiscard]] Plan uncut() const {
    Plan uncut = plan;
    uncut.partition = {std::vector<int>(stages(), 1)};
    return uncut;
  }
  [[nodiscard]] bool cut_is_open() const { return !partition && stages() > 1; }
  // Without a limit nothing recomputes.
  [[nodiscard]] bool recompute_is_open() const { return recompute == Recompute::kOpen && memory_limit > 0; }
  [[nodiscard]] bool needs_costs() const { return cut_is_open() || recompute_is_open(); }
};

// By which the request's plan is cut, with so many chunks.
[[nodiscard]] CutRules cut_rules(const PlanRequest& request, int chunks, const StepOverheads& overheads);

// costs: of each layer; may be empty where none are needed. overheads: those that are known. Warns where nothing is
// estimated to fit.
[[nodiscard]] Plan make_plan(const PlanRequest& request, const std::vector<LayerCost>& costs,
                             const StepOverheads& overheads = {});

// The same for the request's chunks alone, without a word where nothing is estimated to fit. ConfigError where they
// have no schedule.
[[nodiscard]] Plan plan_of_chunks(const PlanRequest& request, const std::vector<LayerCost>& costs,
                                  const StepOverheads& overheads = {});

// "stage 0 3.1 ms (+4 %), ...": forward and backward of a micro-batch, and how far that is from the mean.
[[nodiscard]] std::string describe_balance(const std::vector<LayerCost>& costs, const Plan& plan, double micro_batch);

}  // namespace sluice::tune
