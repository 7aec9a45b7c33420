// choose_plan: from a set-up to its Plan: as configured, and where the cut or the recomputation is left open, by the
// layers' costs, measured here or kept from an earlier run (measure/cost_cache.h). Not here: what is best
// (tune/make_plan.h); the number of chunks, which is chosen by whole steps (choose_chunks.h). Errors: as
// measure_layers().
#pragma once

#include <vector>

#include "core/plan.h"
#include "profiler/layer_profile.h"
#include "train/setup/setup.h"
#include "tune/make_plan.h"

namespace sluice::train {

// What the configuration settles and what it leaves open.
[[nodiscard]] tune::PlanRequest plan_request(const Setup& setup);

// Bytes that plans are made for: nine tenths of device.memory_limit, or of what a GPU has, since they are estimates,
// and shared by the slots on one device; 0: no limit.
[[nodiscard]] std::uint64_t planned_memory(const Setup& setup);
[[nodiscard]] bool shares_memory(const Setup& setup);  // tune::device_bytes()

// What links and update of a profile cost a step of this set-up; nothing for what was not measured.
[[nodiscard]] tune::StepOverheads step_overheads(const Setup& setup, const profiler::LayerProfile& profile);

// Between stages, whatever the cut: their number and their devices are settled. Empty with one device.
[[nodiscard]] std::vector<profiler::StageLink> measure_borders(const Setup& setup);

// The plan by measured costs, whoever measured them: training and `sluice profile` cut alike. Where devices share a
// memory, links cost the same for any cut and do not count.
[[nodiscard]] Plan plan_by_costs(const Setup& setup, const std::vector<LayerCost>& costs,
                                 const std::vector<profiler::StageLink>& borders);

// Of all layers, measured here or kept from an earlier run.
[[nodiscard]] std::vector<LayerCost> layer_costs(const Setup& setup);

// Shares of pipeline.planning_budget_s, in seconds: a third for the layers' costs, the rest for trials of chunks.
[[nodiscard]] double layers_budget(const Setup& setup);
[[nodiscard]] double chunks_budget(const Setup& setup);

// plan_by_costs(), with costs measured here where they are needed; says what was chosen. Links are not kept: they take
// milliseconds, and hold for these devices only.
[[nodiscard]] Plan decide_plan(const Setup& setup);

}  // namespace sluice::train
