// task_options: the task that a configuration asks for. Errors: ConfigError with the key.
#pragma once

#include "config/config.h"
#include "core/scores.h"
#include "task/task.h"

namespace sluice::train {

[[nodiscard]] task::TaskPtr task_of(const config::Config& config);

// Resolves train.best_by = "auto" to the main score.
void settle_best_by(config::Config& config, const Scores& scores);

}  // namespace sluice::train
