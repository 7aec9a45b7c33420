// choose_plan: from a set-up to its Plan: as configured, and where the cut or the recomputation is left open, by the
// layers' costs, measured here or kept from an earlier run (cost_cache.h). Not here: the best cut (tune/partition.h);
// the number of chunks, which is chosen by whole steps (choose_chunks.h). Errors: as measure_layers().
#pragma once

#include <vector>

#include "core/layer_cost.h"
#include "core/plan.h"
#include "train/setup.h"

namespace sluice::train {

// True when the partition is "auto" and there is something to cut.
[[nodiscard]] bool partition_is_measured(const Setup& setup);
// True when recomputation is left open and there is a limit that decides where it is needed.
[[nodiscard]] bool recompute_is_chosen(const Setup& setup);
// True when make_plan() needs costs: for one of these.
[[nodiscard]] bool plan_needs_costs(const Setup& setup);

// Bytes that plans are made for: nine tenths of device.memory_limit, or of what a GPU has, since they are estimates,
// and shared by the places on one device; 0: no limit.
[[nodiscard]] std::uint64_t planned_memory(const Setup& setup);
[[nodiscard]] bool shares_memory(const Setup& setup);  // tune::device_bytes()

// Shares of pipeline.planning_budget_s, in seconds: a third for the layers' costs, the rest for trials of chunks.
[[nodiscard]] double layers_budget(const Setup& setup);
[[nodiscard]] double chunks_budget(const Setup& setup);

// `costs` are needed only where plan_needs_costs(). Says what was chosen, and warns where nothing fits.
[[nodiscard]] Plan make_plan(const Setup& setup, const std::vector<LayerCost>& costs);
// The same with costs measured here where they are needed.
[[nodiscard]] Plan decide_plan(const Setup& setup);

// "stage 0 3.1 ms (+4 %), ...": forward and backward of a micro-batch, and how far that is from the mean.
[[nodiscard]] std::string describe_balance(const std::vector<LayerCost>& costs, const Plan& plan, double micro_batch);

}  // namespace sluice::train
