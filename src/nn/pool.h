// pool: maximum and average pooling of [N, C, H, W] by ATen. Layout: channels_last in, channels_last out.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace sluice::nn {

struct PoolShape {
  std::int64_t kernel, stride;
  std::int64_t padding = 0;  // padding with minus infinity; at most kernel / 2
};

// [N, C, H', W'], H' = floor((H + 2 padding - kernel) / stride) + 1. The gradient goes to the first of equal maxima.
at::Tensor max_pool2d(const at::Tensor& x, const PoolShape& shape);

// [N, C, size, size]: means over the regions of torch.nn.AdaptiveAvgPool2d. May alias x.
at::Tensor adaptive_avg_pool2d(const at::Tensor& x, std::int64_t size);

}  // namespace sluice::nn
