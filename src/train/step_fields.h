// step_fields: the numbers of a step as metrics.jsonl names them (docs/files.md). Pure.
#pragma once

#include <nlohmann/json.hpp>

#include "profiler/breakdown.h"
#include "train/run_totals.h"

namespace sluice::train {

// Times of one place, or of the mean of all: the columns that add up to the step, and parts of them.
[[nodiscard]] nlohmann::ordered_json time_fields(const profiler::StageBreakdown& stage);

// Appends the times of a step to its record; null where nothing was recorded (profile.level = "off").
void add_breakdown(nlohmann::ordered_json& fields, const profiler::StepBreakdown& breakdown);

// The means over a run's steps, a list of places; null where nothing was recorded.
[[nodiscard]] nlohmann::ordered_json mean_breakdown(const RunTotals& totals);

}  // namespace sluice::train
