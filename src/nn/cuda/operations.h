// operations: what our own GPU kernels do, on tensors: dropout by keyed numbers, bias and GELU, layer normalisation,
// the end of a batch normalisation. In a build without a CUDA toolkit has_kernels() says no, and nothing else may be
// called. All run on the current stream of their tensors' device and wait for nothing. Repeats are equal bit for bit:
// no sum depends on which thread comes first. Computed in float; no autograd. Not here: when they are used
// (dropout.cpp, gelu.cpp, layer_norm.cpp, batch_norm_gpu.cpp); their arithmetic, which tests on CPUs share
// (keyed_bits.h, gelu_math.h, row_math.h, number.h).
#pragma once

#include <ATen/core/Tensor.h>

#include "nn/cuda/gelu_math.h"
#include "nn/cuda/keyed_bits.h"

namespace sluice::nn::gpu {

// Whether this build has GPU kernels.
[[nodiscard]] bool has_kernels();
// Whether they can run where x lies: on a GPU of compute capability 8.0 or later, in a build that has them.
[[nodiscard]] bool run_on_device_of(const at::Tensor& x);
// Whether they can also compute with x: float32 or bfloat16.
[[nodiscard]] bool suits(const at::Tensor& x);

// input [N, ...] times the factors of its samples; sample_ids [N] int64 on its device.
[[nodiscard]] at::Tensor dropout(const at::Tensor& input, const at::Tensor& sample_ids, const MaskNumbers& mask);
// The factors alone, float32, `sizes` [N, ...].
[[nodiscard]] at::Tensor dropout_factors(at::IntArrayRef sizes, const at::Tensor& sample_ids, const MaskNumbers& mask);

// gelu(input + bias) for input [..., columns] and bias [columns] float32; upper: the gradient of its answer.
[[nodiscard]] at::Tensor bias_gelu(const at::Tensor& input, const at::Tensor& bias, GeluForm form);
struct BiasGeluGradients {
  at::Tensor x, bias;  // bias: undefined when it is not wanted
};
[[nodiscard]] BiasGeluGradients bias_gelu_backward(const at::Tensor& upper, const at::Tensor& input,
                                                   const at::Tensor& bias, GeluForm form, bool wants_bias);

// The last dimension of the input normalised, times weight plus bias (float32), rounded to `type`.
struct LayerNormResult {
  at::Tensor y;
  at::Tensor mean, inverse_deviation;  // [rows] float32, for backward
};
[[nodiscard]] LayerNormResult layer_norm(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                                         double epsilon, at::ScalarType type);
struct LayerNormGradients {
  at::Tensor x, weight, bias;  // undefined when they are not wanted
};
struct LayerNormWanted {
  bool x, weight_and_bias;
};
[[nodiscard]] LayerNormGradients layer_norm_backward(const at::Tensor& upper, const at::Tensor& input,
                                                     const at::Tensor& weight, const at::Tensor& mean,
                                                     const at::Tensor& inverse_deviation, LayerNormWanted wanted);

// y [N, C, H, W] (contiguous or channels_last) becomes y + residual, then max(0, .) when relu; NaN where the channel's
// variance [C] float32 is infinite. residual: undefined, or like y.
void finish_batch_norm(at::Tensor& y, const at::Tensor& residual, const at::Tensor& variance, bool relu);

}  // namespace sluice::nn::gpu
