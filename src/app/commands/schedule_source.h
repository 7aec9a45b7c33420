// schedule_source: the schedule that `sluice schedule` is about, made by its name or read from a file, and proved.
// Errors: ConfigError for a shape that there is not, a file that cannot be read or parsed, one that says another size
// than the options do, one that breaks a rule, and more actions than are useful.
#pragma once

#include "app/commands/schedule_arguments.h"
#include "pipeline/schedule/action.h"

namespace sluice::app {

[[nodiscard]] pipeline::Schedule proved_schedule(const ScheduleArguments& arguments);

}  // namespace sluice::app
