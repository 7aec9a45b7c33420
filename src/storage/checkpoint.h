// checkpoint: one checkpoint directory: model.safetensors, optimizer.safetensors, state.json, and ema.safetensors where
// an average of the weights is kept.
// Not here: which checkpoints are kept and how a directory appears atomically (checkpoint_store.h); what the tensors
// and the state mean, whether their shapes fit a model (train/).
// state.json is one JSON object: first "xxh3_128" (the hash of every byte after that field), then "files" (size and
// XXH3-128 of each tensor file), "format", "step" and what the trainer put into `state`.
// So a torn, flipped, swapped, mixed or missing file is always seen. Hashes find accidents, not forgery.
// Threads: one per directory. Errors: CheckpointError naming the file and what to do; StorageError from the disk;
// DivergedError where tensors to be saved hold NaN or infinite values: of these no checkpoint is made.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "storage/safetensors.h"

namespace sluice::storage {

struct CheckpointContents {
  TensorMap model;      // parameters and buffers by global layer name, on the CPU
  TensorMap optimizer;  // the optimizer's tensors, on the CPU
  // An object of finite numbers and UTF-8 strings, without the keys xxh3_128, files, format. "step" is added by
  // save; if it is there already it must be the step of the save.
  nlohmann::json state = nlohmann::json::object();
  TensorMap average = {};  // of the weights, under their names, with the buffers; empty: none is kept
  // Metadata of the weights files, so that a copied file keeps it. load does not return it.
  std::map<std::string, std::string> metadata = {};
};

// Writes the files into `dir`, which exists, and makes them durable.
void write_checkpoint(const std::filesystem::path& dir, std::int64_t step, const CheckpointContents& contents);

// Reads and verifies every byte. Tensors are mapped (read_safetensors) and outlive the directory's removal.
[[nodiscard]] CheckpointContents load_checkpoint(const std::filesystem::path& dir);

// What state.json says, without a look at its hash; discarded (is_discarded()) if it is not JSON. Errors: it cannot be
// read.
[[nodiscard]] nlohmann::json read_state(const std::filesystem::path& checkpoint);

// Throws what load_checkpoint() would, without making tensors.
void verify_checkpoint(const std::filesystem::path& dir);

// True when state.json is intact and the tensor files have the sizes it says: cheap, reads no tensor.
[[nodiscard]] bool looks_complete(const std::filesystem::path& dir);

// N of a name "step-N"; nothing for any other name.
[[nodiscard]] std::optional<std::int64_t> step_of(const std::filesystem::path& dir);
[[nodiscard]] std::string checkpoint_name(std::int64_t step);

// Bytes that a checkpoint of `contents` takes, up to headers.
[[nodiscard]] std::uint64_t checkpoint_bytes(const CheckpointContents& contents);

}  // namespace sluice::storage
