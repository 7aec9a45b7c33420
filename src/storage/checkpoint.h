// checkpoint: one checkpoint directory: model.safetensors, optimizer.safetensors, state.json and, if averaged weights
// are kept, ema.safetensors.
// state.json is one JSON object: "xxh3_128" (the hash of every byte after that field), "files" (size and XXH3-128 of
// each tensor file), "format", "step", and the keys of `state`.
// Threads: one per directory. Errors: CheckpointError naming the file and what to do; StorageError from the disk;
// DivergedError if a tensor to save holds NaN or infinite values.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "storage/safetensors.h"

namespace sluice::storage {

struct CheckpointContents {
  TensorMap model;  // parameters and buffers by global layer name, on the CPU
  TensorMap optimizer;
  // JSON object of finite numbers and UTF-8 strings, without the keys xxh3_128, files and format. "step" must equal the
  // step written if it is present.
  nlohmann::json state = nlohmann::json::object();
  TensorMap average = {};  // averaged weights and buffers, named as in `model`; empty if no average is kept
  // Metadata of the weights files, which a copied file keeps. load_checkpoint() does not return it.
  std::map<std::string, std::string> metadata = {};
  // Files for other programs, by name. They are written beside the weights; load_checkpoint() does not return them.
  std::map<std::string, std::string> beside = {};
  TensorMap adapter = {};  // for peft, in adapter_model.safetensors; not returned either; empty: no such file
};

void write_checkpoint(const std::filesystem::path& dir, std::int64_t step, const CheckpointContents& contents);

// Verifies every byte. The tensors are memory-mapped and stay valid after the directory is removed.
[[nodiscard]] CheckpointContents load_checkpoint(const std::filesystem::path& dir);

// Reads state.json without verifying its hash; is_discarded() if it is not JSON. Throws if it cannot be read.
[[nodiscard]] nlohmann::json read_state(const std::filesystem::path& checkpoint);

void verify_checkpoint(const std::filesystem::path& dir);

[[nodiscard]] bool looks_complete(const std::filesystem::path& dir);

[[nodiscard]] std::optional<std::int64_t> step_of(const std::filesystem::path& dir);
[[nodiscard]] std::string checkpoint_name(std::int64_t step);

[[nodiscard]] std::uint64_t checkpoint_bytes(const CheckpointContents& contents);

}  // namespace sluice::storage
