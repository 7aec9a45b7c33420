// merge: adds the adapters of a checkpoint (model.lora_rank) to its weights and writes the result as a folder with
// model.safetensors and the files that were saved beside it, such as config.json. Errors: ConfigError (no adapters),
// CheckpointError, StorageError.
#pragma once

#include <cstdint>
#include <filesystem>

namespace sluice::train {

struct MergedWeights {
  std::filesystem::path checkpoint;
  std::int64_t step = 0;
  std::int64_t adapters = 0;
};

// from: a run directory (its newest checkpoint), or one of its checkpoints. out: a new or existing folder.
MergedWeights merge_adapters(const std::filesystem::path& from, const std::filesystem::path& out);

}  // namespace sluice::train
