// make_plan: makes a Plan from a request and the costs of layers and links. It decides the open parts, the cut and the
// recomputation, and raises an open number of chunks if nothing fits in memory. The best number of chunks is found by
// running steps (chunk_trials.h). Pure, except that it logs doubtful choices. Times in seconds.
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
  // Fixed: schedule, virtual stages, local replicas, chunks, global batch, frozen layers. Open: partition and
  // recompute.
  Plan plan;
  int devices = 1;
  int replicas = 1;  // over all processes
  int layers = 1;
  bool chunks_are_open = false;
  std::optional<Partition> partition;
  Recompute recompute = Recompute::kNone;
  std::vector<bool> recompute_of_stage;  // replaces `recompute`; only with a partition
  std::uint64_t memory_limit = 0;        // bytes per slot; 0: no limit
  bool shares_memory = true;             // as for device_bytes() (memory.h)

  [[nodiscard]] int stages() const { return devices * plan.virtual_stages; }
  // Mean samples of a micro-batch if each replica runs `chunks` of them.
  [[nodiscard]] double mean_micro_batch(int chunks) const {
    return static_cast<double>(plan.global_batch) / replicas / chunks;
  }
  // The plan with one layer per stage; its devices, stages and schedule do not depend on the cut.
  [[nodiscard]] Plan uncut() const {
    Plan uncut = plan;
    uncut.partition = {std::vector<int>(stages(), 1)};
    return uncut;
  }
  [[nodiscard]] bool cut_is_open() const { return !partition && stages() > 1; }
  [[nodiscard]] bool recompute_is_open() const { return recompute == Recompute::kOpen && memory_limit > 0; }
  [[nodiscard]] bool needs_costs() const { return cut_is_open() || recompute_is_open(); }
};

[[nodiscard]] CutRules cut_rules(const PlanRequest& request, int chunks, const StepOverheads& overheads);

// costs: [layer]; may be empty if needs_costs() is false. Warns if nothing is estimated to fit.
[[nodiscard]] Plan make_plan(const PlanRequest& request, const std::vector<LayerCost>& costs,
                             const StepOverheads& overheads = {});

// Like make_plan(), for the request's chunks only and without a warning. Errors: ConfigError if they have no schedule.
[[nodiscard]] Plan plan_of_chunks(const PlanRequest& request, const std::vector<LayerCost>& costs,
                                  const StepOverheads& overheads = {});

// "stage 0 3.1 ms (+4 %), ...": forward and backward of a micro-batch, and the deviation from the mean.
[[nodiscard]] std::string describe_balance(const std::vector<LayerCost>& costs, const Plan& plan, double micro_batch);

}  // namespace sluice::tune
