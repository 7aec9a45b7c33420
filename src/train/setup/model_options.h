// model_options: what a configuration says of the model, of its arithmetic and of the data set, each where the other
// leaves it open: classes, channels and image size, which the data may have; the sizes of images that are drawn or cut
// for the model. Threads: pure. Errors: ConfigError for what does not fit, with the key and what to do.
#pragma once

#include <string>

#include <c10/core/ScalarType.h>

#include "config/config.h"
#include "data/dataset.h"
#include "models/model.h"
#include "optim/optimizer.h"

namespace sluice::train {

// Of parameters and of the images that are loaded; with train.precision = "bf16" layers compute in another.
[[nodiscard]] at::ScalarType dtype_of(const config::Config& config);
[[nodiscard]] nn::Numerics numerics_of(const config::Config& config);
// Of what a checkpoint holds.
[[nodiscard]] std::string stored_precision(const config::Config& config);
[[nodiscard]] data::DatasetOptions dataset_options(const config::Config& config);
[[nodiscard]] models::ModelOptions model_options(const config::Config& config, const data::DatasetInfo& info);

// Of the engine, or of a parameter server.
[[nodiscard]] optim::OptimizerOptions optimizer_options(const config::Config& config);

}  // namespace sluice::train
