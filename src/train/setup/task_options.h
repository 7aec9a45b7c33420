// task_options: the task that a configuration asks for. Errors: ConfigError with the key.
#pragma once

#include "config/config.h"
#include "core/scores.h"
#include "task/task.h"

namespace sluice::train {

[[nodiscard]] task::TaskPtr task_of(const config::Config& config);

// The score of train.best_by. A task without "top1", the default, has another main score.
[[nodiscard]] std::string best_by(const config::TrainConfig& train, const Scores& scores);

}  // namespace sluice::train
