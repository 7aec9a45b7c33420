// not_finite: NaN and infinite values in tensors: found, counted, and told in words ("conv1.weight has 1 NaN").
// Not here: what follows from one (checkpoint.h, engine/state.h, engine/divergence.h). Threads: any. Integers have
// none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <ATen/core/Tensor.h>

#include "storage/safetensors.h"

namespace sluice::storage {

// Whether values of this type that lie one after the other are all finite; types other than F64, F32, F16 and BF16
// always are. 90 MB take about 15 ms.
[[nodiscard]] bool all_finite(std::span<const std::byte> values, at::ScalarType type);
[[nodiscard]] bool all_finite(const at::Tensor& tensor);

// "1 NaN", "2 infinite values", "2 NaN and 1 infinite value"; empty where all are finite.
[[nodiscard]] std::string describe_not_finite(const at::Tensor& tensor);

// "conv1.weight has 1 NaN (and 2 more tensors hold NaN or infinite values)"; empty where all are finite.
[[nodiscard]] std::string describe_not_finite(const TensorMap& tensors);

}  // namespace sluice::storage
