// foreign_weights: converts the tensors of a file to our model's: names (foreign_names.h), shapes, the split of query,
// key and value, and the position embeddings of a vision transformer. Values are shared with the file unless computed.
// Interpolation is bicubic, as in the library whose names the file uses: Hugging Face without antialiasing, timm with
// it, torchvision with aligned corners. Errors: CheckpointError naming the file and the tensor.
#pragma once

#include <map>
#include <string>

#include "models/foreign_names.h"
#include "models/model.h"

namespace sluice::models {

using NamedTensors = std::map<std::string, at::Tensor>;

struct ForeignWeights {
  NamedTensors tensors;   // by our names; unknown tensors keep their names
  NamedTensors left_out;  // by the file's names: tensors that our models do not use
  NamesOf names = {};
  std::string interpolated;
  std::int64_t new_counters = 0;  // batch counters of batch norms that older files lack; set to 0
};

[[nodiscard]] ForeignWeights to_our_names(const ModelOptions& model, NamedTensors file, const std::string& source);

}  // namespace sluice::models
