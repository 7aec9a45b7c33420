// operations: the project's GPU kernels on tensors, without autograd. In a build without a CUDA toolkit only
// has_kernels(), run_on_device_of() and suits() may be called.
// All calls use the current stream of their tensors' device and do not wait. Results repeat bit for bit: no sum depends
// on the order of threads. Tests on CPUs share the arithmetic (row_math.h, number.h, ...).
#pragma once

#include <ATen/core/Tensor.h>

#include "nn/cuda/gelu_math.h"
#include "nn/cuda/keyed_bits.h"

namespace sluice::nn::gpu {

[[nodiscard]] bool has_kernels();
// True if the kernels can run on the device of x: a GPU of compute capability 8.0 or later, in a build with kernels.
[[nodiscard]] bool run_on_device_of(const at::Tensor& x);
// True if the kernels can also compute with x: float32 or bfloat16.
[[nodiscard]] bool suits(const at::Tensor& x);

// input [N, ...] times the factors of its samples. sample_ids: [N] int64 on the device of the input.
[[nodiscard]] at::Tensor dropout(const at::Tensor& input, const at::Tensor& sample_ids, const MaskNumbers& mask);
[[nodiscard]] at::Tensor dropout_factors(at::IntArrayRef sizes, const at::Tensor& sample_ids, const MaskNumbers& mask);

// gelu(input + bias) for input [..., columns] and bias [columns] float32. upper: gradient of the result.
[[nodiscard]] at::Tensor bias_gelu(const at::Tensor& input, const at::Tensor& bias, GeluForm form);
struct BiasGeluGradients {
  at::Tensor x, bias;
};
[[nodiscard]] BiasGeluGradients bias_gelu_backward(const at::Tensor& upper, const at::Tensor& input,
                                                   const at::Tensor& bias, GeluForm form, bool wants_bias);

// Normalises the last dimension, multiplies by weight and adds bias (both float32), and rounds to `type`.
struct LayerNormResult {
  at::Tensor y;
  at::Tensor mean, inverse_deviation;  // [rows] float32, for backward
};
[[nodiscard]] LayerNormResult layer_norm(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                                         double epsilon, at::ScalarType type);
struct LayerNormGradients {
  at::Tensor x, weight, bias;  // undefined if they are not wanted
};
struct LayerNormWanted {
  bool x, weight_and_bias;
};
[[nodiscard]] LayerNormGradients layer_norm_backward(const at::Tensor& upper, const at::Tensor& input,
                                                     const at::Tensor& weight, const at::Tensor& mean,
                                                     const at::Tensor& inverse_deviation, LayerNormWanted wanted);

// logits: [rows, classes]; targets: [rows] int64. losses: of each row; 0 for kNoTarget, NaN if the target is no class.
// log_sums: logarithm of the row's sum of exponentials. factor: scalar float32, the gradient of the sum of all losses.
struct RowLosses {
  at::Tensor losses, log_sums;  // [rows] float32
};
[[nodiscard]] RowLosses cross_entropy(const at::Tensor& logits, const at::Tensor& targets, double smoothing);
[[nodiscard]] at::Tensor cross_entropy_backward(const at::Tensor& logits, const at::Tensor& targets,
                                                const at::Tensor& log_sums, const at::Tensor& factor, double smoothing);
// [2] int64: targets with the largest logit, and those among the five largest.
[[nodiscard]] at::Tensor count_hits(const at::Tensor& logits, const at::Tensor& targets);

// y [N, C, H, W] (contiguous or channels_last) becomes y + residual, then max(0, .) if relu. Channels with an infinite
// variance, so an inverse deviation of 0 ([C] float32), become NaN. residual: undefined, or in shape, type and layout
// like y.
void finish_batch_norm(at::Tensor& y, const at::Tensor& residual, const at::Tensor& inverse_deviation, bool relu);

}  // namespace sluice::nn::gpu
