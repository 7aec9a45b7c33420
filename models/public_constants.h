// public_constants: arithmetic and pixel preparation of public models, which their tensors do not show. They follow
// from the library whose names a file uses, and from config.json and preprocessor_config.json beside it. Errors:
// CheckpointError with file, key and value for a model whose arithmetic is not supported.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "models/foreign_names.h"
#include "models/model.h"

namespace sluice::models {

// Constants implied by a file's tensor names alone. Checkpoints without `constants` count as kOurs.
[[nodiscard]] ModelConstants constants_by_names(NamesOf names, const ModelOptions& model);

// Like constants_by_names(), refined by config.json. `config` may be null and is ignored if it is from another library.
// source: file name for messages.
[[nodiscard]] ModelConstants public_constants(NamesOf names, const ModelOptions& model, const nlohmann::json& config,
                                              const std::string& source);

// Which files beside the weights apply: those from the library whose names the tensors have.
struct FilesBeside {
  bool config = false, preprocessor = false;
};
[[nodiscard]] FilesBeside files_of_names(NamesOf names, const std::string& model, const nlohmann::json& config);

struct PublicPixels {
  std::vector<double> mean, stddev;  // [channels], of pixel / 255; empty: not specified
  std::string interpolation;
};
// preprocessor: content of preprocessor_config.json. Either argument is null if it is missing or does not apply.
[[nodiscard]] PublicPixels public_pixels(const nlohmann::json& config, const nlohmann::json& preprocessor,
                                         const std::string& source);

}  // namespace sluice::models
