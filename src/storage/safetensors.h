// safetensors: named tensors in one file (https://github.com/huggingface/safetensors): weights in and out, checkpoints,
// and the results of `sluice step` and `sluice eval`.
// Not here: which tensors a model has and their shapes; moving tensors between devices (device/).
// Threads: any, one call per file. Errors: CheckpointError (exit code 7) naming file, tensor and what was expected;
// StorageError (exit code 8) for a disk that is full, read-only or faulty; DivergedError (6) for Values::kFinite.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <string>

#include "storage/checksum.h"

namespace sluice::storage {

using TensorMap = std::map<std::string, at::Tensor>;

struct SafetensorsFile {
  TensorMap tensors;  // CPU, contiguous, any shape; writable without changing the file
  std::map<std::string, std::string> metadata;
};

// What may be written. kFinite: DivergedError where a value is NaN or infinite, "conv1.weight has 1 NaN", and no file.
// It is found in the pass that hashes and writes.
enum class Values { kAny, kFinite };

// Writes `path` atomically and durably (temporary file, fsync, rename); returns size and XXH3-128 of the file, computed
// while writing. Order: strictest alignment first, then name, which is what the official writer does.
// Requires: dense CPU tensors; dtypes F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL (others are a CheckpointError).
// Tensors in any memory layout are written row-major; tensors that share memory are written each.
FileDigest write_safetensors(const std::filesystem::path& path, const TensorMap& tensors,
                             const std::map<std::string, std::string>& metadata = {{"format", "pt"}},
                             Values allowed = Values::kAny);

// Bytes of data that write_safetensors() will write for `tensors`, without the header.
[[nodiscard]] std::uint64_t tensor_bytes(const TensorMap& tensors);

// Maps the file: tensors share its pages, which are read when touched and copied when changed, and keep the mapping
// alive. The file may be removed or replaced meanwhile, but not shortened (SIGBUS). Tensors that lie at an address that
// their element type cannot have are copied.
[[nodiscard]] SafetensorsFile read_safetensors(const std::filesystem::path& path);

}  // namespace sluice::storage
