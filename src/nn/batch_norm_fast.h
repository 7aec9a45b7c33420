// batch_norm_fast: CPU path of batch_norm.h for float32 and bfloat16, one autograd node over the kernels of kernels/.
// Rows are split into fixed pieces, so the result does not depend on the number of threads.
#pragma once

#include "nn/batch_norm.h"

namespace sluice::nn {

bool batch_norm_has_fast_path(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight);

BatchNormResult batch_norm_fast(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight,
                                const at::Tensor& bias, double epsilon, Activation activation);

}  // namespace sluice::nn
