// batch_norm_gpu: batch_norm.h's training pass on GPUs as one autograd node: cuDNN's kernels in float32, as LibTorch
// itself has it; in bfloat16 (which LibTorch keeps from cuDNN), and where the shape is beyond cuDNN's, ATen's own,
// which read bfloat16 and take statistics in float32 without a copy. Then one kernel of ours (cuda/operations.h) adds
// the residual, takes the ReLU and makes NaN of a channel whose variance has overflowed. The statistics come from the
// same pass, through running statistics of the call's own.
#pragma once

#include "nn/batch_norm.h"

namespace sluice::nn {

[[nodiscard]] bool batch_norm_runs_on_gpu(const at::Tensor& x, const at::Tensor& weight);

// Requires: batch_norm_runs_on_gpu().
[[nodiscard]] BatchNormResult batch_norm_on_gpu(const at::Tensor& x, const at::Tensor& residual,
                                                const at::Tensor& weight, const at::Tensor& bias, double epsilon,
                                                Activation activation);

}  // namespace sluice::nn
