// constants: what a run computes with and neither its configuration nor its tensors say: the constants of the model
// (models/public_constants.h) and how pixels are normalised. They come from the checkpoint or the weights that the run
// starts from; they stand in each checkpoint and in the metadata of its files with weights.
// Threads: pure, but for the log. Errors: CheckpointError, as models/public_constants.h has it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "config/config.h"
#include "models/model.h"
#include "storage/checkpoint.h"

namespace sluice::train {

struct Constants {
  models::ModelConstants model;
  std::vector<double> mean, stddev;  // of pixel / 255, [channels]; empty: the data set's own

  [[nodiscard]] nlohmann::json to_json() const;
  [[nodiscard]] static Constants from_json(const nlohmann::json& json, const std::string& source);
};

// Constants of a run that starts from fresh weights.
[[nodiscard]] Constants own_constants(const models::ModelOptions& model);
// Constants saved in a checkpoint. state: its state.json; earlier versions have no constants in it.
[[nodiscard]] Constants saved_constants(const nlohmann::json& state, const models::ModelOptions& model,
                                        const std::string& source);

// Constants of weights to fine-tune or evaluate; weights: a resolved path (storage/weights_files.h). Logs them; warns
// if data.interpolation differs.
[[nodiscard]] Constants constants_of_weights(const std::filesystem::path& weights, const config::Config& config,
                                             const models::ModelOptions& model);

// Writes them into a checkpoint's state and its files' metadata.
void put_constants(const Constants& constants, storage::CheckpointContents& contents);

// Weights that know tokens of their own are nonsense on a data set whose tokens are bytes. Errors: ConfigError.
void check_tokens_of_weights(const std::filesystem::path& weights, const models::ModelOptions& model,
                             const std::string& data_name);

}  // namespace sluice::train
