// foreign_weights: the tensors of a file, under whichever names (models/foreign_names.h), as tensors of a model of
// ours: renamed, query, key and value cut apart, given our shapes where the numbers lie alike, position embeddings of a
// vision transformer interpolated to its image size. Values are shared with the file's where nothing is computed.
// Interpolation is bicubic, as the library whose names the file has does it: Hugging Face's without antialias, timm's
// with it, torchvision's with the corners kept in place.
// Not here: files; whether the tensors fit (engine::load_model), heads for other classes
// (train/setup/starting_weights.h). Errors: CheckpointError names the file and the tensor.
#pragma once

#include <map>
#include <string>

#include "models/foreign_names.h"
#include "models/model.h"

namespace sluice::models {

using NamedTensors = std::map<std::string, at::Tensor>;

struct ForeignWeights {
  NamedTensors tensors;           // by our names; what the tables do not know keeps its own
  NamedTensors left_out;          // by the file's names: what our models have no use for
  NamesOf names = {};             // whose the file has
  std::string interpolated;       // "vit...position_embeddings from 14 x 14 to 24 x 24 patches"; empty: nothing
  std::int64_t new_counters = 0;  // of batches, which older files of models with batch-norm lack: set to 0
};

// `source` names the file in errors.
[[nodiscard]] ForeignWeights to_our_names(const ModelOptions& model, NamedTensors file, const std::string& source);

}  // namespace sluice::models
