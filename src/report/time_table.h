// time_table: milliseconds per step of each slot or parameter-server worker; the columns add up to the step.
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

[[nodiscard]] std::string cell(std::optional<double> value, int decimals);

// Idle time in the pipeline bubble (fill, steady and drain); nothing if all are unknown.
[[nodiscard]] std::optional<double> bubble_ms(const Numbers& ms);

// A row per slot (marked if it ran in only some steps) and their mean weighted by steps; without slots, the row "all
// stages" from `means`. steps: number of averaged steps. processes: of the run; the slots are those of rank 0. which:
// replaces "of all N steps" in the title if the run had other steps.
[[nodiscard]] std::string time_table(std::span<const SlotTimes> slots, const Numbers& means, std::int64_t steps,
                                     std::int64_t processes = 1, std::string_view which = {});

[[nodiscard]] std::string worker_time_table(std::span<const std::pair<std::string, Numbers>> workers);

}  // namespace sluice::report
