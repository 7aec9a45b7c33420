// constants: values that a run takes from its checkpoint or weights: the model's constants (models/public_constants.h),
// the pixel normalisation and the alpha of adapters. Checkpoints and the metadata of their weight files hold them.
// Threads: any. Errors: CheckpointError.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "config/config.h"
#include "data/dataset.h"
#include "models/model.h"
#include "storage/checkpoint.h"

namespace sluice::train {

struct Constants {
  models::ModelConstants model;
  std::vector<double> mean, stddev;  // of pixel / 255, [channels]; empty: use the data set's
  double lora_alpha = 0;             // with which the adapters were trained; 0: there are none, or it is unknown
  std::string model_file = {};       // digest of model.file; empty: another model

  [[nodiscard]] nlohmann::json to_json() const;
  [[nodiscard]] static Constants from_json(const nlohmann::json& json, const std::string& source);
};

[[nodiscard]] Constants constants_of_model(const models::ModelOptions& model);
// state: state.json of a checkpoint; earlier versions have no constants in it. source: the checkpoint's folder.
// CheckpointError if its config.json computes otherwise than the model.
[[nodiscard]] Constants saved_constants(const nlohmann::json& state, const models::ModelOptions& model,
                                        const std::string& source);

// CheckpointError if the checkpoint `source` was written with another content of model.file.
void check_model_file(const Constants& saved, const models::ModelOptions& model, const std::string& source);

// weights: a resolved path (storage/weights_files.h). Logs the constants; warns if data.interpolation differs.
[[nodiscard]] Constants constants_of_weights(const std::filesystem::path& weights, const config::Config& config,
                                             const models::ModelOptions& model);

void put_constants(const Constants& constants, storage::CheckpointContents& contents);

// Warns if the file data.tokenizer is not the one beside the weights. ConfigError for bytes if the weights know tokens.
void check_tokens_of_weights(const std::filesystem::path& weights, const config::Config& config,
                             const models::ModelOptions& model, const data::DatasetInfo& data);

}  // namespace sluice::train
