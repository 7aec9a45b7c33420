// not_finite: finds, counts and describes NaN and infinite values in tensors ("conv1.weight has 1 NaN"). Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <ATen/core/Tensor.h>

#include "storage/safetensors.h"

namespace sluice::storage {

// Always true for types other than F64, F32, F16 and BF16. 90 MB take about 15 ms.
[[nodiscard]] bool all_finite(std::span<const std::byte> values, at::ScalarType type);
[[nodiscard]] bool all_finite(const at::Tensor& tensor);

[[nodiscard]] std::string describe_not_finite(const at::Tensor& tensor);

// "conv1.weight has 1 NaN (and 2 more tensors hold NaN or infinite values)"; empty if all values are finite.
[[nodiscard]] std::string describe_not_finite(const TensorMap& tensors);

}  // namespace sluice::storage
