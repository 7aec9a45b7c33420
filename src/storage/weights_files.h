// weights_files: the tensors of a model as people keep them: one safetensors file; a folder with model.safetensors, or
// with several and model.safetensors.index.json, which says which file has which tensor; that index itself. A run
// directory stands for its newest whole checkpoint, which resolve_weights() finds: once, as that run may go on saving.
// Not here: what the names mean (models/foreign_names.h). Threads: any.
// Errors: as of safetensors.h; CheckpointError too for an index that is none, that names a file which is not there or
// in another folder, or a tensor that its file lacks, and for a tensor that two files have; for a run without a whole
// checkpoint.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "storage/safetensors.h"

namespace sluice::storage {

// The newest whole checkpoint of a run directory; any other path as it is.
[[nodiscard]] std::filesystem::path resolve_weights(const std::filesystem::path& path);

// path: resolved, here and below. Maps the files, as read_safetensors() does.
[[nodiscard]] TensorMap read_weights(const std::filesystem::path& path);

// What weights say of themselves besides their tensors. Files that are not there, or hold no JSON object, are null.
struct AboutWeights {
  std::filesystem::path folder;                 // of the weights
  nlohmann::json config, preprocessor;          // config.json and preprocessor_config.json, as libraries write them
  nlohmann::json state;                         // state.json of a checkpoint of ours
  std::map<std::string, std::string> metadata;  // of a single safetensors file
};
[[nodiscard]] AboutWeights read_about_weights(const std::filesystem::path& path);

}  // namespace sluice::storage
