// public_constants: what public models fix beside their tensors: the arithmetic (ModelConstants) and how the pixels of
// their images are prepared. A file tells it by the library whose names it has, and by what that library puts beside
// it: config.json (transformers, timm) and preprocessor_config.json (transformers).
// Not here: reading these files (storage/weights_files.h). Threads: pure.
// Errors: CheckpointError for a model that computes otherwise than ours can, with the file, the key and its value.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "models/foreign_names.h"
#include "models/model.h"

namespace sluice::models {

// Constants implied by a file's tensor names alone. Checkpoints without `constants` count as kOurs.
[[nodiscard]] ModelConstants constants_by_names(NamesOf names, const std::string& model);

// The same with what config.json says; `config` is null if there is none, and does not count if it is another
// library's. source: the file in messages.
[[nodiscard]] ModelConstants public_constants(NamesOf names, const ModelOptions& model, const nlohmann::json& config,
                                              const std::string& source);

// Whether the files beside weights count: config.json (transformers', which has "model_type", or timm's) and
// preprocessor_config.json (transformers') if they are of the library whose names the tensors have.
struct FilesBeside {
  bool config = false, preprocessor = false;
};
[[nodiscard]] FilesBeside files_of_names(NamesOf names, const std::string& model, const nlohmann::json& config);

struct PublicPixels {
  std::vector<double> mean, stddev;  // of pixel / 255, [channels]; empty: nothing is said
  std::string interpolation;         // "bilinear", "bicubic" or another one; empty: nothing is said
};
// preprocessor: of preprocessor_config.json. Either is null if it is not there or does not count.
[[nodiscard]] PublicPixels public_pixels(const nlohmann::json& config, const nlohmann::json& preprocessor,
                                         const std::string& source);

}  // namespace sluice::models
