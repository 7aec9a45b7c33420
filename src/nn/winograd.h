// winograd: 3x3 convolutions (one group, stride 1, padding 1) with 16 multiplications where the plain sum needs 36
// (Winograd's F(2x2, 3x3); kernels/kernels.h has the formulas). Float32 on the CPU, channels_last, channels in
// multiples of 16. Rounding: about that of the plain sum (docs/performance.md); small integers come out exact. Answers
// are the same, bit for bit, for any number of threads and any number of other images in the batch. Not here: autograd
// (conv.h). x [N, in, H, W], weight [out, in, 3, 3] of any strides, bias [out], grad [N, out, H, W].
#pragma once

#include <ATen/ATen.h>

#include <optional>

#include "nn/transformed_weights.h"

namespace sluice::nn {

// Does the shape fit, and does it pay? The answer depends on shapes and types only, so a run repeats bit for bit.
bool winograd_pays(const at::Tensor& x, const at::Tensor& weight, std::int64_t stride, std::int64_t padding);

// The three products of such a convolution; each demands winograd_pays(). Answers are channels_last, but for the weight
// gradient, which has the strides of the weight. `transformed`: where to find and keep the transformed weight; null:
// nowhere.
at::Tensor winograd_forward(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                            TransformedWeights* transformed);
at::Tensor winograd_input_gradient(const at::Tensor& grad, const at::Tensor& weight, TransformedWeights* transformed);
at::Tensor winograd_weight_gradient(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& weight);

}  // namespace sluice::nn
