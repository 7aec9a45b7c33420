// schedule_source: the validated schedule of `sluice schedule`, by name or from a file. Errors: ConfigError.
#pragma once

#include "app/commands/schedule_arguments.h"
#include "pipeline/schedule/action.h"

namespace sluice::app {

[[nodiscard]] pipeline::Schedule proved_schedule(const ScheduleArguments& arguments);

}  // namespace sluice::app
