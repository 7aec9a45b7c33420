#pragma once

#include <cstdint>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/clock.h"
#include "profiler/breakdown.h"
#include "report/run_log.h"

namespace sluice::report {

// A change of plan changes the slots.
struct SlotTotal {
  profiler::SlotBreakdown sum;
  std::int64_t steps = 0;
  Nanoseconds duration = 0;
};

using SlotTotals = std::vector<SlotTotal>;

void add_step(SlotTotals& totals, const profiler::StepBreakdown& breakdown);

[[nodiscard]] std::vector<SlotTimes> mean_times(const SlotTotals& totals);

// The means as the list "breakdown" of `summary`; null if nothing was recorded.
[[nodiscard]] nlohmann::ordered_json mean_breakdown(const SlotTotals& totals);

}  // namespace sluice::report
