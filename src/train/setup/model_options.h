// model_options: options of model, arithmetic, data set and optimizer. The data set supplies what the configuration
// leaves open (classes, channels, image size). Threads: any. Errors: ConfigError with the key and what to do.
#pragma once

#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include "config/config.h"
#include "data/dataset.h"
#include "models/model.h"
#include "optim/optimizer.h"

namespace sluice::train {

// Type of parameters and loaded images. With train.precision = "bf16", layers compute in another type.
[[nodiscard]] at::ScalarType dtype_of(const config::Config& config);
[[nodiscard]] nn::Numerics numerics_of(const config::Config& config);
[[nodiscard]] std::string stored_precision(const config::Config& config);
[[nodiscard]] data::DatasetOptions dataset_options(const config::Config& config);
[[nodiscard]] models::ModelOptions model_options(const config::Config& config, const data::DatasetInfo& info);

// Why the model does not take a field of samples; empty: it does.
[[nodiscard]] std::string misfit(const models::TensorInfo& wanted, const data::FieldInfo& field);

// For a model from a file and data of the user's own: that it takes their fields.
void check_fields(const config::Config& config, const models::ModelOptions& model,
                  const std::vector<const data::Dataset*>& splits);  // null: none

[[nodiscard]] optim::OptimizerOptions optimizer_options(const config::Config& config);

// Sets train.deterministic and device.tf32 (for products and convolutions; LibTorch's default uses TF32 for
// convolutions only) in the whole process. Call it before a model exists.
void apply_libtorch_settings(const config::Config& config);

}  // namespace sluice::train
