// place_totals: where the time of many steps went, for each place of a process: sums, means, and their fields.
// Not here: what else steps add up to (run_totals.h). Values and pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/clock.h"
#include "profiler/breakdown.h"
#include "report/run_log.h"

namespace sluice::report {

// A plan that changes in a run has other places than the one before.
struct PlaceTotal {
  profiler::PlaceBreakdown sum;
  std::int64_t steps = 0;    // in which it ran
  Nanoseconds duration = 0;  // of these steps
};

// Those that ran, in order; empty when nothing was recorded.
using PlaceTotals = std::vector<PlaceTotal>;

void add_step(PlaceTotals& totals, const profiler::StepBreakdown& breakdown);

// Means over the steps that each place ran in.
[[nodiscard]] std::vector<PlaceTimes> mean_times(const PlaceTotals& totals);

// The same as a list of objects, as `summary` has it as "breakdown"; null where nothing was recorded.
[[nodiscard]] nlohmann::ordered_json mean_breakdown(const PlaceTotals& totals);

}  // namespace sluice::report
