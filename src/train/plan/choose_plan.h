// choose_plan: the Plan of a set-up. An open partition or recomputation is decided by the layers' costs, measured here
// or cached (measure/cost_cache.h). For the search see tune/make_plan.h. Errors: those of measure_layers().
#pragma once

#include <vector>

#include "core/plan.h"
#include "profiler/layer_profile.h"
#include "train/setup/setup.h"
#include "tune/make_plan.h"
#include "tune/memory_model.h"

namespace sluice::train {

[[nodiscard]] tune::PlanRequest plan_request(const Setup& setup);

// Bytes per slot for plans: 9/10 (plans are estimates) of device.memory_limit or of a GPU's memory, divided by its
// slots, on GPUs less tune::kCublasBytesOfSlot; 0: no limit.
[[nodiscard]] std::uint64_t planned_memory(const Setup& setup);
[[nodiscard]] bool shares_memory(const Setup& setup);  // as in tune::device_bytes()

// Cost of a profile's links and update per step of this set-up; unmeasured costs stay unset.
[[nodiscard]] tune::StepOverheads step_overheads(const Setup& setup, const profiler::LayerProfile& profile);

[[nodiscard]] std::vector<profiler::StageLink> measure_borders(const Setup& setup);

// Ignores links if the devices share memory, because they then cost the same for any partition.
[[nodiscard]] Plan plan_by_costs(const Setup& setup, const std::vector<LayerCost>& costs,
                                 const std::vector<profiler::StageLink>& borders);

[[nodiscard]] std::vector<LayerCost> layer_costs(const Setup& setup);

// Counts layers with these costs, and with train.reproducible also gradients that wait for their turn in a sum.
[[nodiscard]] tune::MemoryModel memory_model_of(std::vector<LayerCost> costs, const Setup& setup);

// Shares of pipeline.planning_budget_s in seconds: a third for layer costs, the rest for chunk trials.
[[nodiscard]] double layers_budget(const Setup& setup);
[[nodiscard]] double chunks_budget(const Setup& setup);

// Like plan_by_costs(), but measures missing costs and logs the choice. Links are always measured, in milliseconds.
[[nodiscard]] Plan decide_plan(const Setup& setup);

}  // namespace sluice::train
