// squares: the squared length of a gradient, for the gradient noise scale. Threads: any. Errors: BugError.
#pragma once

#include <ATen/core/Tensor.h>

namespace sluice::ddp {

// A float64 scalar on the buffer's device. On a CPU the bits do not depend on the number of threads.
[[nodiscard]] at::Tensor squares_of(const at::Tensor& flat);

}  // namespace sluice::ddp
