// clip_norm: gradient norms and the factor of torch.nn.utils.clip_grad_norm_. Threads: any.
#pragma once

#include <ATen/core/Tensor.h>

namespace sluice::optim {

// Sums over a flat buffer in float64, without a copy. On CPUs the bits do not depend on the number of threads.
[[nodiscard]] double sum_of_squares(const at::Tensor& flat);
[[nodiscard]] double sum_of_magnitudes(const at::Tensor& flat);
// False if an element is infinite or NaN. One pass over the memory, several times faster than a sum.
[[nodiscard]] bool is_finite(const at::Tensor& flat);

// The factor that reduces a gradient of length `norm` to at most `most`; 1 if it is shorter.
[[nodiscard]] double clip_factor(double norm, double most);

}  // namespace sluice::optim
