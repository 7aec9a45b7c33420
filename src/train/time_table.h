// time_table: "where the time went": milliseconds per step of each (replica, stage) as a table whose columns add up to
// the step. Not here: measuring (profiler/breakdown.h), reading (records/run_log.h). Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "core/text_table.h"
#include "train/records/run_log.h"

namespace sluice::train {

// A number with its decimals; "-" where there is none.
[[nodiscard]] std::string cell(std::optional<double> value, int decimals);

// Idle time in the bubble: fill, steady and drain together; nothing where none of them is known.
[[nodiscard]] std::optional<double> bubble_ms(const Numbers& ms);

// A row for each place and their mean, or the row "all stages" from `means` where there are no places.
// steps: how many the means are of.
[[nodiscard]] std::string time_table(std::span<const PlaceTimes> places, const Numbers& means, std::int64_t steps);

}  // namespace sluice::train
