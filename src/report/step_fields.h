// step_fields: the numbers of a step as metrics.jsonl names them (docs/files.md). Pure.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <utility>
#include <vector>

#include "core/flops.h"
#include "profiler/breakdown.h"
#include "report/run_totals.h"

namespace sluice::report {

// Milliseconds by field, in the order of the records: the columns that add up to the step, and parts of them.
[[nodiscard]] std::vector<std::pair<std::string, double>> times_of(const profiler::PlaceBreakdown& place);

// Appends the times of a step to its record; null where nothing was recorded (profile.level = "off").
void add_breakdown(nlohmann::ordered_json& fields, const profiler::StepBreakdown& breakdown);

// Model FLOP/s, whole and by kind of product, and their share of the stated peak.
void add_flops(nlohmann::ordered_json& fields, const FlopCount& flops, Nanoseconds duration, const RunFacts& facts);

// The means over a run's steps, a list of places; null where nothing was recorded.
[[nodiscard]] nlohmann::ordered_json mean_breakdown(const RunTotals& totals);

}  // namespace sluice::report
