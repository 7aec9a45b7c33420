// winograd: 3x3 convolutions (one group, stride 1, padding 1) with 16 multiplications where the plain sum needs 36
// (Winograd's F(2x2, 3x3)), or where it may, with 36 in place of 144 (F(4x4, 3x3); kernels/kernels.h has the formulas).
// On the CPU, channels_last, channels in multiples of 16; float32, or gradients of bfloat16 with a weight of float32,
// whose transformed values are rounded to bfloat16 and added up in float32. Rounding, in the norm and beside the plain
// sum's: F(2x2) about the same, small integers come out exact; F(4x4) two to six times (docs/performance.md). Answers
// are the same, bit for bit, for any number of threads and any number of other images in the batch that leaves the tile
// as it is. Not here: autograd (conv.h). x [N, in, H, W], weight [out, in, 3, 3] of any strides, bias [out], grad [N,
// out, H, W].
#pragma once

#include <ATen/ATen.h>

#include <optional>

#include "nn/layer.h"
#include "nn/transformed_weights.h"

namespace sluice::nn {

// The outputs along the side of a tile, 2 or 4; 0: Winograd's algorithms do not fit the shape, do not pay, or may not
// be used. The answer depends on shapes and types only, so a run repeats bit for bit.
int winograd_tile(const at::Tensor& x, const at::Tensor& weight, std::int64_t stride, std::int64_t padding,
                  Winograd allowed);
// The same by the images alone, where all else fits.
int winograd_tile(std::int64_t images, std::int64_t height, std::int64_t width, Winograd allowed);

// The three products of such a convolution with tiles of that side. Answers are channels_last, but for the weight
// gradient, which has the strides of the weight. `transformed`: where to find and keep the transformed weight; null:
// nowhere.
at::Tensor winograd_forward(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                            int tile, TransformedWeights* transformed);
at::Tensor winograd_input_gradient(const at::Tensor& grad, const at::Tensor& weight, int tile,
                                   TransformedWeights* transformed);
at::Tensor winograd_weight_gradient(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& weight, int tile);

}  // namespace sluice::nn
