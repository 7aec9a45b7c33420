// squares: the squared length of a gradient before replicas are added up, for the gradient noise scale.
// Threads: any. Errors: BugError if the buffer has another type or gaps.
#pragma once

#include <ATen/core/Tensor.h>

namespace sluice::ddp {

// Returns the sum of squares as a float64 scalar on the buffer's device. On a GPU it is only queued on the current
// stream. On a CPU the bits do not depend on the number of threads. Requires a float32 or float64 buffer without gaps.
[[nodiscard]] at::Tensor squares_of(const at::Tensor& flat);

}  // namespace sluice::ddp
