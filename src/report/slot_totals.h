// slot_totals: where the time of many steps went, for each slot of a process: sums, means, and their fields.
// Not here: what else steps add up to (run_totals.h). Values and pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/clock.h"
#include "profiler/breakdown.h"
#include "report/run_log.h"

namespace sluice::report {

// A plan that changes in a run has other slots than the one before.
struct SlotTotal {
  profiler::SlotBreakdown sum;
  std::int64_t steps = 0;    // in which it ran
  Nanoseconds duration = 0;  // of these steps
};

// Those that ran, in order; empty when nothing was recorded.
using SlotTotals = std::vector<SlotTotal>;

void add_step(SlotTotals& totals, const profiler::StepBreakdown& breakdown);

// Means over the steps that each slot ran in.
[[nodiscard]] std::vector<SlotTimes> mean_times(const SlotTotals& totals);

// The same as a list of objects, as `summary` has it as "breakdown"; null where nothing was recorded.
[[nodiscard]] nlohmann::ordered_json mean_breakdown(const SlotTotals& totals);

}  // namespace sluice::report
