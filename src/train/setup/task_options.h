// task_options: the task that a configuration asks for. Errors: ConfigError with the key.
#pragma once

#include <map>
#include <string>

#include "config/config.h"
#include "core/scores.h"
#include "data/dataset.h"
#include "data/mask_tokens.h"
#include "models/model.h"
#include "task/task.h"

namespace sluice::train {

// Resolves model.task if it is empty and the data set says more than the model.
void settle_task(config::Config& config);

[[nodiscard]] task::TaskPtr task_of(const models::ModelOptions& model, const data::DatasetInfo* data,
                                    double label_smoothing);

// How data sets of text become samples of this model.
[[nodiscard]] data::TextOptions text_options(const config::Config& config, const models::ModelOptions& model);

// For model.task = "mlm"; else its share is 0.
[[nodiscard]] data::MaskOptions masking_of(const config::Config& config, const models::ModelOptions& model);

// By name: config.json and the tokenizer's files. Empty for models of images.
[[nodiscard]] std::map<std::string, std::string> files_beside_weights(const config::Config& config,
                                                                      const models::ModelOptions& model,
                                                                      const data::DatasetInfo* data);

// The score of train.best_by. A task without "top1", the default, has another main score.
[[nodiscard]] std::string best_by(const config::TrainConfig& train, const Scores& scores);

}  // namespace sluice::train
