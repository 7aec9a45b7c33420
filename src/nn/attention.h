// attention: multi-head softmax attention over packed projections; causal: no position attends to later ones.
// Fast path: float32, CPU, not causal, no dropout, short sequences, head width a multiple of 16: own kernels that read
// the packed projection in place and write its gradient packed; they keep the probabilities for backward. Otherwise:
// ATen; with dropout the plain formula with our keyed mask (scaled_dot_product_attention would draw from the global
// generator), float64 and what is not finite likewise, else scaled_dot_product_attention.
// On GPUs scaled_dot_product_attention takes the first of kOrderOnGpus that can run what it is given: flash attention
// (bfloat16, heads up to 256 wide), cuDNN's (bfloat16), memory-efficient (float32 too), the plain formula. The
// gradients of the fused ones do not repeat bit for bit, but where LibTorch makes an error of every operator that does
// not. So with at::Context::deterministicAlgorithms() (train.deterministic) it is always the plain formula, which keeps
// the probabilities.
#pragma once

#include <array>
#include <string_view>

#include <ATen/SDPBackend.h>

#include "nn/layer.h"

namespace sluice::nn {

// For the whole process, from the first attention on a GPU.
inline constexpr std::array kOrderOnGpus{at::SDPBackend::flash_attention, at::SDPBackend::cudnn_attention,
                                         at::SDPBackend::efficient_attention, at::SDPBackend::math};

struct AttentionOptions {
  std::int64_t heads = 1;
  double dropout = 0;
  std::string_view site;  // key of the dropout mask
  bool causal = false;    // self_attention() only
};

// packed [N, T, 3 width]: query, key, value side by side. Returns [N, T, width].
at::Tensor self_attention(const at::Tensor& packed, const AttentionOptions& options, const ForwardContext& context);

// query [N, Q, width], packed [N, T, 2 width]: key, value side by side. Returns [N, Q, width].
at::Tensor cross_attention(const at::Tensor& query, const at::Tensor& packed, const AttentionOptions& options,
                           const ForwardContext& context);

}  // namespace sluice::nn
