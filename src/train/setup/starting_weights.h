// starting_weights: initializes a model from safetensors files (storage/weights_files.h) with our tensor names or those
// of other libraries (models/foreign_weights.h). The file must hold exactly the model's tensors, except in the head:
// the layers after the last block of models/freeze_points.h. A head part ("classifier": its weight and bias) stays
// fresh if it is for another number of classes, or if the file lacks it and all later parts. Errors: CheckpointError as
// in engine::load_model, also for an incomplete file and unused tensors that are not finite.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/compose.h"
#include "models/model.h"
#include "storage/safetensors.h"

namespace sluice::train {

[[nodiscard]] bool has_adapters(const storage::TensorMap& tensors);

struct StartingWeights {
  storage::TensorMap taken, unused;           // tensors of the file; not yet checked against the model
  std::vector<std::string> of_other_classes;  // the file's tensors are for `file_classes` classes
  std::vector<std::string> lacking;           // missing from the file
  std::vector<std::string> fresh_adapters;    // the file has none
  std::int64_t file_classes = 0, own_classes = 0;
  std::string how;                // how the file's tensors were converted; empty if they were not
  std::int64_t new_counters = 0;  // tensors in `taken` that the file lacks
};
[[nodiscard]] StartingWeights choose_starting_weights(const models::ModelOptions& model, storage::TensorMap file);

[[nodiscard]] std::string in_words(const StartingWeights& weights);

// Loads the weights into all replicas. adapters: model.lora_weights; may be empty. Requires: initial values in
// `composition`; a resolved path of the file.
void load_starting_weights(engine::Composition& composition, const models::ModelOptions& model,
                           const std::filesystem::path& file, const std::filesystem::path& adapters = {});

// The weights of a file. If they have no adapters: with the adapters and the trained head of a folder, if it is not
// empty. CheckpointError if the model has adapters, but neither has any. source: the file, for the message.
[[nodiscard]] storage::TensorMap with_adapters(const models::ModelOptions& model, storage::TensorMap weights,
                                               const std::filesystem::path& adapters, const std::string& source);

}  // namespace sluice::train
