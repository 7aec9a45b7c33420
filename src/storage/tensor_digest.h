// tensor_digest: one number for a set of named tensors, equal exactly if names, types, shapes and all bits are equal,
// except by a chance of 2^-128. XXH3-128 over each tensor's elements in row-major order, then over the lines
// "name type [sizes] digest" in the order of the names. Threads: any. Errors: out of
// memory, for copies of tensors that are not dense or on a GPU.
#pragma once

#include <string>

#include "storage/safetensors.h"

namespace sluice::storage {

// 32 hexadecimal digits. Tensors on a GPU are copied to the CPU one by one.
[[nodiscard]] std::string digest_of_tensor(const at::Tensor& tensor);
[[nodiscard]] std::string digest_of_tensors(const TensorMap& tensors);

}  // namespace sluice::storage
