// round: rounds numbers in place. Threads: any, on the current stream of the tensor's device.
#pragma once

#include <ATen/ATen.h>

namespace sluice::device {

// To the nearest bfloat16 numbers, in the tensor's own type.
inline void round_to_bf16(const at::Tensor& tensor) { tensor.copy_(tensor.to(at::kBFloat16)); }

}  // namespace sluice::device
