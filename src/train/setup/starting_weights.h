// starting_weights: a model that begins to train with the tensors of safetensors files (storage/weights_files.h), under
// our names or others' (models/foreign_weights.h). They have to hold exactly the model's, but for the head (what comes
// after the last block of models/freeze_points.h): parts of it that were made for another number of classes, and those
// at its end that the file lacks, keep the values the model was made with. A part is what has its name in common but
// for the last word, "classifier.weight" and "classifier.bias"; it is taken whole or not at all. Not here: checkpoints
// and evaluation, which need exactly the model's tensors (engine::load_model). Errors: CheckpointError as of
// engine::load_model, also for a file that is not whole; values that are not finite are refused in what stays unused,
// too.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/compose.h"
#include "models/model.h"
#include "storage/safetensors.h"

namespace sluice::train {

// What a model takes of a file, by our names of tensors.
struct StartingWeights {
  storage::TensorMap taken, unused;                // of the file; whether `taken` fits is not known yet
  std::vector<std::string> of_other_classes;       // fresh, because the file's are for `file_classes`
  std::vector<std::string> lacking;                // fresh, because the file has none
  std::int64_t file_classes = 0, own_classes = 0;  // of the file's head and the model's
  std::string how;                                 // what had to be done to the file's tensors; empty: nothing
  std::int64_t new_counters = 0;                   // in `taken`, but not of the file
};
[[nodiscard]] StartingWeights choose_starting_weights(const models::ModelOptions& model, storage::TensorMap file);

// One line: how many tensors are taken, which are fresh and why, which are unused.
[[nodiscard]] std::string in_words(const StartingWeights& weights);

// Into all replicas, and says so in the log. Requires: a composition of `model` with the values it was made with; a
// resolved path (storage/weights_files.h).
void load_starting_weights(engine::Composition& composition, const models::ModelOptions& model,
                           const std::filesystem::path& file);

}  // namespace sluice::train
