// tensors_dataset: samples with tensors of any names, from train.safetensors and test.safetensors of a folder: [n, ...]
// each, with the same n. The fields are the tensors. Threads: const, any number. Errors: DataError.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "storage/safetensors.h"

namespace sluice::data {

// A safetensors file, which is data here: DataError, not CheckpointError.
[[nodiscard]] storage::TensorMap read_tensors(const std::filesystem::path& file);

// tensor: [n, ...].
[[nodiscard]] FieldInfo field_of(const std::string& name, const at::Tensor& tensor);

[[nodiscard]] std::unique_ptr<Dataset> open_tensors(const std::filesystem::path& folder, Split split);

}  // namespace sluice::data
