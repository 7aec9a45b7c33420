// attention: multi-head softmax attention over packed projections. Causal: no position attends to later ones.
// CPU kernels of this project run for float32 or bfloat16, not causal, without dropout, short sequences and a head
// width in multiples of 16; they keep the probabilities for backward. Otherwise ATen runs. Dropout (with a keyed mask),
// float64 and inputs that are not finite use the plain formula.
// On GPUs, scaled_dot_product_attention takes the first backend of kOrderOnGpus that supports the input. Gradients of
// fused backends repeat bit for bit only if LibTorch raises an error for every nondeterministic operator. So with
// at::Context::deterministicAlgorithms() (train.deterministic) the plain formula always runs.
#pragma once

#include <array>
#include <string_view>

#include <ATen/SDPBackend.h>

#include "nn/layer.h"

namespace sluice::nn {

// The order in which LibTorch tries its attention kernels. The first attention on a GPU sets it for the whole process.
inline constexpr std::array kOrderOnGpus{at::SDPBackend::flash_attention, at::SDPBackend::cudnn_attention,
                                         at::SDPBackend::efficient_attention, at::SDPBackend::math};

struct AttentionOptions {
  std::int64_t heads = 1;
  double dropout = 0;
  std::string_view site;  // key of the dropout mask
  bool causal = false;    // self_attention() only
};

// packed: [N, T, 3 width], query, key and value side by side. Returns [N, T, width].
at::Tensor self_attention(const at::Tensor& packed, const AttentionOptions& options, const ForwardContext& context);

// query: [N, Q, width]; packed: [N, T, 2 width], key and value side by side. Returns [N, Q, width].
at::Tensor cross_attention(const at::Tensor& query, const at::Tensor& packed, const AttentionOptions& options,
                           const ForwardContext& context);

}  // namespace sluice::nn
