// attention: multi-head softmax attention over packed projections. Causal: no position attends to later ones.
// Groups restrict attention to positions of the same group: Hugging Face's attention_mask (0 is padding, 1 is text), or
// documents packed into one row (1, 2, 3, ...). Grouped-query attention: several query heads share a key head (Ainslie
// et al. 2023).
// CPU kernels of this project run for float32 (up to 2048 positions of a group) or bfloat16 (up to 1024), without
// dropout and with a head width in multiples of 16. They compute each group by itself, so padding and pairs of
// different groups cost nothing. Otherwise ATen runs with a mask: also if a group has padding or another group inside.
// Dropout (with a keyed mask), float64 and inputs that are not finite use the plain formula. On GPUs LibTorch chooses
// among its kernels. Gradients of fused backends repeat bit for bit only if LibTorch raises an error for every
// nondeterministic operator. So with at::Context::deterministicAlgorithms() (train.deterministic) the plain formula
// always runs.
#pragma once

#include <optional>
#include <string_view>

#include "nn/layer.h"

namespace sluice::nn {

struct AttentionOptions {
  std::int64_t heads = 1;
  double dropout = 0;
  std::string_view site;      // key of the dropout mask
  bool causal = false;        // self_attention() only
  std::int64_t kv_heads = 0;  // heads of key and value, a divisor of `heads`; 0: as many as `heads`
};

// packed: [N, T, (heads + 2 kv_heads) head_width], query, key and value side by side. Returns [N, T, heads *
// head_width].
// groups: undefined (one group), or [N, T] int64. A position attends to positions with its own value. 0 is padding: the
// output and all gradients are zero there. On CPUs the values are read; on GPUs the call does not wait for them.
at::Tensor self_attention(const at::Tensor& packed, const AttentionOptions& options, const ForwardContext& context,
                          const at::Tensor& groups = {});

// query: [N, Q, heads * head_width]; packed: [N, T, 2 kv_heads * head_width], key and value side by side. Returns the
// shape of query.
at::Tensor cross_attention(const at::Tensor& query, const at::Tensor& packed, const AttentionOptions& options,
                           const ForwardContext& context);

// ATen's attention without dropout: on GPUs LibTorch's choice of kernels, or the plain formula in deterministic runs.
// q, k, v: [N, heads, T, head_width]; mask: undefined, or that of ATen; scale: of the scores.
at::Tensor fused_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& mask,
                           bool causal, std::optional<double> scale = {});

// True if a CPU kernel of this project runs for a query [N, heads, T, head_width] and keys of one group, as long.
bool has_own_kernel(const at::Tensor& query);

}  // namespace sluice::nn
