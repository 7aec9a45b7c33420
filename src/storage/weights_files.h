// weights_files: reads the tensors of a model from a safetensors file, an index (model.safetensors.index.json), or a
// folder with model.safetensors or shards and an index. Call resolve_weights() once first: it replaces a run directory
// by its newest complete checkpoint, and the run may go on saving.
// Threads: any. Errors: as safetensors.h; CheckpointError for an invalid index, for one that names a missing file or a
// file in another folder, for a tensor that its file lacks or that two files have, and for a run without a complete
// checkpoint.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "storage/safetensors.h"

namespace sluice::storage {

// Returns the newest complete checkpoint of a run directory; any other path unchanged.
[[nodiscard]] std::filesystem::path resolve_weights(const std::filesystem::path& path);

// path: a result of resolve_weights(), here and below. Maps the files like read_safetensors().
[[nodiscard]] TensorMap read_weights(const std::filesystem::path& path);

// The folder of the files beside the weights, such as config.json.
[[nodiscard]] std::filesystem::path folder_of_weights(const std::filesystem::path& path);

// Null if the file is missing or holds no JSON object.
[[nodiscard]] nlohmann::json read_object(const std::filesystem::path& file);

// Metadata of weights. Files that are missing or hold no JSON object are null.
struct AboutWeights {
  std::filesystem::path folder;
  nlohmann::json config, preprocessor;  // config.json and preprocessor_config.json, as written by libraries
  nlohmann::json state;
  std::map<std::string, std::string> metadata;
};
[[nodiscard]] AboutWeights read_about_weights(const std::filesystem::path& path);

}  // namespace sluice::storage
