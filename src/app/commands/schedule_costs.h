// schedule_costs: the times and bytes that `sluice schedule` was given, as costs of the stages of a schedule.
// Errors: ConfigError for a list that has another length than there are devices, for times and bytes that cannot be
// added up, and for a device whose memory does not do.
#pragma once

#include <cstdint>
#include <vector>

#include "app/commands/schedule_arguments.h"
#include "pipeline/schedule/action.h"
#include "pipeline/schedule/simulate.h"

namespace sluice::app {

// `schedule` must be a validated one.
[[nodiscard]] pipeline::Costs costs_of(const ScheduleArguments& arguments, const pipeline::Schedule& schedule);

// Per device, the most bytes it holds at any time; empty where no bytes were given.
[[nodiscard]] std::vector<std::int64_t> peak_bytes_of(const ScheduleArguments& arguments,
                                                      const pipeline::Schedule& schedule);

}  // namespace sluice::app
