// winograd: 3x3 convolutions (one group, stride 1, padding 1) on the CPU by Winograd's F(2x2, 3x3) or F(4x4, 3x3)
// (formulas: kernels/kernels.h). Requires: channels_last and channels in multiples of 16; float32, or for gradients
// also bfloat16 with a float32 weight. Rounding error, as a norm relative to the plain sum's: F(2x2) about the same;
// F(4x4) two to six times as large (docs/results/performance.md). Results are bit-equal for any number of threads.
#pragma once

#include <ATen/ATen.h>

#include <optional>

#include "nn/layer.h"
#include "nn/transformed_weights.h"

namespace sluice::nn {

// Outputs along the side of a tile, 2 or 4. 0: Winograd's algorithms do not fit the shape, do not pay off, or are not
// allowed. Depends only on shapes and types.
int winograd_tile(const at::Tensor& x, const at::Tensor& weight, std::int64_t stride, std::int64_t padding,
                  Winograd allowed);
// The same for a shape whose other requirements are met, from the number and size of the images.
int winograd_tile(std::int64_t images, std::int64_t height, std::int64_t width, Winograd allowed);

// x [N, in, H, W], weight and its gradient [out, in, 3, 3] of any strides, bias [out], grad [N, out, H, W]. Results are
// channels_last. `transformed`: cache, or null.
at::Tensor winograd_forward(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                            int tile, TransformedWeights* transformed);
at::Tensor winograd_input_gradient(const at::Tensor& grad, const at::Tensor& weight, int tile,
                                   TransformedWeights* transformed);
at::Tensor winograd_weight_gradient(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& weight, int tile);

}  // namespace sluice::nn
