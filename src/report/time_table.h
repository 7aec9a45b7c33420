// time_table: "where the time went": milliseconds per step of each (replica, stage) as a table whose columns add up to
// the step, and of each worker of a parameter server. Not here: measuring (profiler/breakdown.h), reading (run_log.h).
// Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "core/text_table.h"
#include "report/run_log.h"

namespace sluice::report {

// A number with its decimals; "-" where there is none.
[[nodiscard]] std::string cell(std::optional<double> value, int decimals);

// Idle time in the bubble: fill, steady and drain together; nothing where none of them is known.
[[nodiscard]] std::optional<double> bubble_ms(const Numbers& ms);

// A row for each slot, which says so where it has run in a part of the steps, and their mean by steps; or the row "all
// stages" from `means` where there are no slots. steps: how many the means are of. processes: of the run; the times
// are those of rank 0's devices. which: replaces "of all N steps" in the title, if the run has had other steps.
[[nodiscard]] std::string time_table(std::span<const SlotTimes> slots, const Numbers& means, std::int64_t steps,
                                     std::int64_t processes = 1, std::string_view which = {});

// A row a worker: its name and its means of a push, which have two parts of idle time more.
[[nodiscard]] std::string worker_time_table(std::span<const std::pair<std::string, Numbers>> workers);

}  // namespace sluice::report
