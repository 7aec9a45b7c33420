// safetensors: named tensors in one file (https://github.com/huggingface/safetensors).
// Threads: any, one call per file. Errors: CheckpointError naming file, tensor and what was expected; StorageError for
// a full, read-only or faulty disk; DivergedError for Values::kFinite.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <string>

#include "storage/checksum.h"

namespace sluice::storage {

using TensorMap = std::map<std::string, at::Tensor>;

struct SafetensorsFile {
  TensorMap tensors;  // CPU, contiguous, any shape; writing to them does not change the file
  std::map<std::string, std::string> metadata;
};

// kFinite: DivergedError ("conv1.weight has 1 NaN"), and no file, if a value is NaN or infinite.
enum class Values { kAny, kFinite };

// Writes `path` atomically and durably. Tensors are ordered by strictest alignment, then name, like the official
// writer, and written row-major; each is written even if it shares memory. Requires: dense CPU tensors; CheckpointError
// for dtypes other than F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL.
FileDigest write_safetensors(const std::filesystem::path& path, const TensorMap& tensors,
                             const std::map<std::string, std::string>& metadata = {{"format", "pt"}},
                             Values allowed = Values::kAny);

[[nodiscard]] std::uint64_t tensor_bytes(const TensorMap& tensors);

// Maps the file; its pages are read on first access and copied on write. The file may be removed or replaced meanwhile,
// but not shortened (SIGBUS). A tensor at an address misaligned for its element type is copied.
[[nodiscard]] SafetensorsFile read_safetensors(const std::filesystem::path& path);

}  // namespace sluice::storage
