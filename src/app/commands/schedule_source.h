// schedule_source: creates the schedule of `sluice schedule` from its name or a file and validates it. Errors:
// ConfigError for an impossible shape, an unreadable or invalid file, a file that contradicts the options, a broken
// schedule rule, and too many actions.
#pragma once

#include "app/commands/schedule_arguments.h"
#include "pipeline/schedule/action.h"

namespace sluice::app {

[[nodiscard]] pipeline::Schedule proved_schedule(const ScheduleArguments& arguments);

}  // namespace sluice::app
