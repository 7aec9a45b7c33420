#include "nn/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "core/check.h"
#include "nn/attention_cpu.h"
#include "nn/dropout.h"
#include "nn/flops.h"

namespace sluice::nn {
namespace {

// Longest run of our CPU kernels. Beyond it ATen's are about as fast (float32) or faster (bfloat16).
std::int64_t longest_run(const at::Tensor& x) { return is_bf16(x) ? 1024 : 2048; }

std::int64_t kv_heads_of(const AttentionOptions& options) {
  const std::int64_t heads = options.kv_heads == 0 ? options.heads : options.kv_heads;
  check(heads > 0 && options.heads % heads == 0, "kv_heads that divide heads");
  return heads;
}

// Nothing: our CPU kernels do not suit.
std::optional<std::vector<AttentionRun>> runs_on_cpu(const AttentionOperands& in, const AttentionOptions& options,
                                                     const ForwardContext& context) {
  const bool with_dropout = context.training && options.dropout > 0;
  if (with_dropout || !suits_kernels(in.packed) || in.packed.numel() == 0 ||
      in.head_width() % kernels::kHeadStep != 0) {
    return std::nullopt;
  }
  auto runs = in.runs();
  const std::int64_t longest = longest_run(in.packed);
  const auto is_short = [longest](const AttentionRun& run) { return run.keys <= longest; };
  return runs && std::ranges::all_of(*runs, is_short) ? std::move(runs) : std::nullopt;
}

at::Tensor split_heads(const at::Tensor& x, std::int64_t heads) {
  return x.view({x.size(0), x.size(1), heads, -1}).transpose(1, 2);
}

// ATen's CPU kernel of scaled_dot_product_attention turns NaN scores into numbers, because its exp does: forward in
// some shapes, backward in others. Finite sums of the squares of query and key imply finite scores.
bool may_lose_not_finite(at::TensorList operands) {
  return std::ranges::any_of(operands, [](const at::Tensor& operand) {
    if (!operand.device().is_cpu()) return false;
    const at::Tensor flat = operand.detach().reshape({-1});
    return !std::isfinite(at::dot(flat, flat).item<double>());
  });
}

struct Heads {
  at::Tensor q, k, v;  // [N, heads, positions, head_width]
};

struct Visibility {
  bool causal = false;
  at::Tensor groups;  // [N, T]; undefined: one group

  // True if the query sees the key: [T, T] or [N, 1, T, T]. Undefined: it sees all. Padding sees padding, so that no
  // row is empty.
  [[nodiscard]] at::Tensor mask(const at::Tensor& q) const {
    at::Tensor visible;
    if (groups.defined()) visible = groups.unsqueeze(2).eq(groups.unsqueeze(1)).unsqueeze(1);
    if (!causal) return visible;
    const at::Tensor earlier = at::ones({q.size(2), q.size(2)}, q.options().dtype(at::kBool)).tril();
    return visible.defined() ? visible.logical_and(earlier) : earlier;
  }
};

// A mask prevents the fastest kernels, so causal attention without groups does not use one.
at::Tensor fused_attention(const Heads& heads, const Visibility& visibility) {
  const at::Tensor mask = visibility.groups.defined() ? visibility.mask(heads.q) : at::Tensor();
  return nn::fused_attention(heads.q, heads.k, heads.v, mask, visibility.causal && !mask.defined());
}

at::Tensor attention_by_formula(const Heads& heads, const Visibility& visibility, const AttentionOptions& options,
                                const ForwardContext& context) {
  const double scale = 1.0 / std::sqrt(static_cast<double>(heads.q.size(3)));
  at::Tensor scores = at::matmul(heads.q, heads.k.transpose(2, 3)) * scale;
  const at::Tensor mask = visibility.mask(heads.q);
  if (mask.defined()) scores = scores.masked_fill(mask.logical_not(), -std::numeric_limits<double>::infinity());
  const at::Tensor probabilities = at::softmax(scores, -1);
  return at::matmul(dropout(probabilities, options.dropout, options.site, context), heads.v);
}

// [N, T, kv_heads * d] -> [N, heads, T, d]; each key head stands next to its copies.
at::Tensor split_kv_heads(const at::Tensor& x, const AttentionOptions& options) {
  const std::int64_t kv_heads = kv_heads_of(options);
  const at::Tensor split = split_heads(x, kv_heads);
  return kv_heads == options.heads ? split : split.repeat_interleave(options.heads / kv_heads, 1);
}

// parts: query, key, value.
at::Tensor plain_attention(at::TensorList parts, at::TensorList operands, const Visibility& visibility,
                           const AttentionOptions& options, const ForwardContext& context) {
  const at::Tensor& query = parts[0];
  const Heads heads{split_heads(query, options.heads), split_kv_heads(parts[1], options),
                    split_kv_heads(parts[2], options)};
  const bool with_dropout = context.training && options.dropout > 0;
  at::Tensor out;
  if (with_dropout || query.scalar_type() == at::kDouble || may_lose_not_finite(operands)) {
    out = attention_by_formula(heads, visibility, options, context);
  } else {
    out = fused_attention(heads, visibility);
  }
  out = out.transpose(1, 2).reshape(query.sizes());
  return visibility.groups.defined() ? out.masked_fill(visibility.groups.eq(0).unsqueeze(2), 0) : out;
}

// As in PyTorch, causal attention counts masked scores, too.
void count(const at::Tensor& query, std::int64_t queries, const at::Tensor& packed, std::int64_t width) {
  const auto pairs = static_cast<double>(packed.size(0) * queries * packed.size(1));
  count_product(ProductKind::kAttention, 2 * pairs * static_cast<double>(width), query, packed);
}

}  // namespace

// On GPUs, fused kernels add up gradients in varying order, so deterministic runs avoid them.
at::Tensor fused_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& mask,
                           bool causal, std::optional<double> scale) {
  const auto optional_mask = mask.defined() ? std::optional(mask) : std::nullopt;
  if (q.is_cuda() && at::globalContext().deterministicAlgorithms())
    return std::get<0>(at::_scaled_dot_product_attention_math(q, k, v, optional_mask, 0.0, causal, {}, scale));
  return at::scaled_dot_product_attention(q, k, v, optional_mask, 0.0, causal, scale);
}

bool has_own_kernel(const at::Tensor& query) {
  return suits_kernels(query) && query.size(3) % kernels::kHeadStep == 0 && query.size(2) <= longest_run(query);
}

at::Tensor self_attention(const at::Tensor& packed, const AttentionOptions& options, const ForwardContext& context,
                          const at::Tensor& groups) {
  check(!groups.defined() || (groups.scalar_type() == at::kLong && groups.sizes() == packed.sizes().slice(0, 2)),
        "attention groups [N, T] of int64");
  const std::int64_t kv_heads = kv_heads_of(options);
  const at::Tensor own_groups = groups.defined() ? groups.to(packed.device(), /*non_blocking=*/true) : groups;
  const AttentionOperands in{{}, packed, own_groups, options.heads, kv_heads, options.causal};
  check(packed.size(2) == (options.heads + 2 * kv_heads) * in.head_width(), "packed [N, T, (heads + 2 kv_heads) * d]");
  count(packed, packed.size(1), packed, in.width());
  if (const auto runs = runs_on_cpu(in, options, context)) return attention_on_cpu(in, *runs);
  const std::int64_t of_kv = kv_heads * in.head_width();
  return plain_attention(packed.split_with_sizes({in.width(), of_kv, of_kv}, 2), {packed}, {options.causal, own_groups},
                         options, context);
}

at::Tensor cross_attention(const at::Tensor& query, const at::Tensor& packed, const AttentionOptions& options,
                           const ForwardContext& context) {
  check(!options.causal, "cross-attention without a causal mask");
  const AttentionOperands in{query, packed, {}, options.heads, kv_heads_of(options), false};
  check(query.size(2) == in.width(), "a query as wide as its heads");
  count(query, query.size(1), packed, in.width());
  if (const auto runs = runs_on_cpu(in, options, context)) return attention_on_cpu(in, *runs);
  const auto parts = packed.chunk(2, 2);
  return plain_attention({query, parts[0], parts[1]}, {query, packed}, {}, options, context);
}

}  // namespace sluice::nn
