// batch_norm_gpu: GPU training pass of batch_norm.h as one autograd node. float32 uses cuDNN, as LibTorch does;
// bfloat16 and shapes beyond cuDNN's limits use ATen's kernels with float32 statistics. Then one kernel of this project
// (cuda/operations.h) adds the residual, applies the ReLU and sets channels with an overflowed variance to NaN.
#pragma once

#include "nn/batch_norm.h"

namespace sluice::nn {

[[nodiscard]] bool batch_norm_runs_on_gpu(const at::Tensor& x, const at::Tensor& weight);

// Requires: batch_norm_runs_on_gpu().
[[nodiscard]] BatchNormResult batch_norm_on_gpu(const at::Tensor& x, const at::Tensor& residual,
                                                const at::Tensor& weight, const at::Tensor& bias, double epsilon,
                                                Activation activation, const RunningStatistics* running);

}  // namespace sluice::nn
