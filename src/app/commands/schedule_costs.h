// schedule_costs: costs of the stages from the options of `sluice schedule`. Errors: ConfigError.
#pragma once

#include <cstdint>
#include <vector>

#include "app/commands/schedule_arguments.h"
#include "pipeline/schedule/action.h"
#include "pipeline/schedule/simulate.h"

namespace sluice::app {

// Requires: a validated `schedule`.
[[nodiscard]] pipeline::Costs costs_of(const ScheduleArguments& arguments, const pipeline::Schedule& schedule);

// Peak bytes per device; empty if no bytes were given.
[[nodiscard]] std::vector<std::int64_t> peak_bytes_of(const ScheduleArguments& arguments,
                                                      const pipeline::Schedule& schedule);

}  // namespace sluice::app
