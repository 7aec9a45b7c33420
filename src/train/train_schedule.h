// train_schedule: the schedule that training runs under a name of the configuration: one stage a device.
// Not here: schedules that are only costed and drawn (pipeline/schedule/generators.h has them all).
#pragma once

#include <string_view>

#include "pipeline/schedule/action.h"

namespace sluice::train {

// Not validated. Errors: ConfigError for an unknown name, and for a schedule that the executor does not run.
[[nodiscard]] pipeline::Schedule make_train_schedule(std::string_view name, int stages, int chunks);

}  // namespace sluice::train
