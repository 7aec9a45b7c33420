// pool: maximum and average pooling of [N, C, H, W], without parameters, so that a split backward has nothing to put
// off. ATen's kernels and autograd; the input is left alone. Layout: channels_last in, channels_last out.
// Not here: the mean over all pixels before a classifier, which is Tensor::mean.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace sluice::nn {

struct PoolShape {
  std::int64_t kernel, stride;
  std::int64_t padding = 0;  // with minus infinity; at most kernel / 2
};

// [N, C, H', W'], H' = floor((H + 2 padding - kernel) / stride) + 1. The gradient goes to the first of equal maxima.
at::Tensor max_pool2d(const at::Tensor& x, const PoolShape& shape);

// [N, C, size, size]: every value the mean of its share of the pixels, as torch.nn.AdaptiveAvgPool2d cuts them; a pixel
// counts several times where there are fewer than `size`. May alias x, which costs nothing when H = W = size.
at::Tensor adaptive_avg_pool2d(const at::Tensor& x, std::int64_t size);

}  // namespace sluice::nn
