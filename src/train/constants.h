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

// Of a run that begins with fresh weights.
[[nodiscard]] Constants own_constants(const models::ModelOptions& model);
// Of a checkpoint; `state` is that of its state.json, which checkpoints of earlier versions wrote without constants.
[[nodiscard]] Constants saved_constants(const nlohmann::json& state, const models::ModelOptions& model,
                                        const std::string& source);

// Of weights that are to be trained further or evaluated; a resolved path (storage/weights_files.h). Logs what they
// fix, and warns if data.interpolation is another than theirs.
[[nodiscard]] Constants constants_of_weights(const std::filesystem::path& weights, const config::Config& config,
                                             const models::ModelOptions& model);

// Into the state of a checkpoint and the metadata of its files.
void put_constants(const Constants& constants, storage::CheckpointContents& contents);

// Weights that know tokens of their own are nonsense on a data set whose tokens are bytes. Errors: ConfigError.
void check_tokens_of_weights(const std::filesystem::path& weights, const models::ModelOptions& model,
                             const std::string& data_name);

}  // namespace sluice::train
