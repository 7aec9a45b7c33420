// squares: the squared length of a gradient before replicas are added up, for the gradient noise scale. Not here: the
// norm that gradients are clipped by (optim/clip_norm.h).
// Threads: any. Errors: BugError for another type, or a buffer with gaps.
#pragma once

#include <ATen/core/Tensor.h>

namespace sluice::ddp {

// The sum of squares as a number on the buffer's device, [] in float64: on a GPU it is only queued on the current
// stream. On a CPU the same bits whatever the number of threads. Requires: float32 or float64, without gaps.
[[nodiscard]] at::Tensor squares_of(const at::Tensor& flat);

}  // namespace sluice::ddp
