// clip_norm: the sums that norms of gradients are made of, and by how much a gradient that is too long is scaled down,
// as torch.nn.utils.clip_grad_norm_ does it.
// Not here: which gradients, and that all processes clip by the same number (engine/train_step.h). Threads: any.
#pragma once

#include <ATen/core/Tensor.h>

namespace sluice::optim {

// Of a flat buffer, in float64 whatever its type. No copy of the buffer is made. On CPUs the same bits for any number
// of threads.
[[nodiscard]] double sum_of_squares(const at::Tensor& flat);
[[nodiscard]] double sum_of_magnitudes(const at::Tensor& flat);
// Whether no element is infinite or none at all. One pass, several times faster than a sum.
[[nodiscard]] bool is_finite(const at::Tensor& flat);

// What a gradient of length `norm` is multiplied by, so that it is at most `most` long; 1 where it is shorter.
[[nodiscard]] double clip_factor(double norm, double most);

}  // namespace sluice::optim
