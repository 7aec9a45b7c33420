#include "nn/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/check.h"
#include "nn/dropout.h"
#include "nn/flops.h"
#include "nn/kernel_data.h"
#include "nn/own_operator.h"
#include "nn/parallel.h"

namespace sluice::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::int64_t kLongestSequence = 256;  // longest measured; the saved probabilities grow with its square

// The query is the first third of `packed`, or a tensor of its own.
struct Operands {
  at::Tensor query, packed;  // query undefined: self-attention
  std::int64_t heads;

  [[nodiscard]] bool is_self() const { return !query.defined(); }
  [[nodiscard]] std::int64_t width() const { return packed.size(2) / (is_self() ? 3 : 2); }
  [[nodiscard]] std::int64_t queries() const { return is_self() ? packed.size(1) : query.size(1); }
  [[nodiscard]] kernels::AttentionShape shape() const {
    const std::int64_t head_width = width() / heads;
    return {.queries = queries(),
            .keys = packed.size(1),
            .head_width = head_width,
            .q_stride = is_self() ? packed.size(2) : width(),
            .kv_stride = packed.size(2),
            .out_stride = width(),
            .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_width)))};
  }
};

template <typename T>
struct Pointers {
  T *q, *k, *v;
};

template <typename T>
Pointers<T> head_pointers(const Operands& where, T* query, T* packed, std::int64_t sample, std::int64_t head) {
  const std::int64_t width = where.width(), offset = head * (width / where.heads);
  T* row = packed + sample * where.packed.size(1) * where.packed.size(2) + offset;
  if (where.is_self()) return {row, row + width, row + 2 * width};
  return {query + sample * where.queries() * width + offset, row, row + width};
}

template <typename T>
class AttentionFunction : public torch::autograd::Function<AttentionFunction<T>> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const std::optional<at::Tensor>& query, const at::Tensor& packed,
                            std::int64_t heads) {
    const Operands in{query ? query->contiguous() : at::Tensor(), packed.contiguous(), heads};
    OwnOperator call("sluice::attention", {in.query, in.packed});
    const auto shape = in.shape();
    const auto& kernel = kernels::best().attention.of<T>();
    const std::int64_t samples = packed.size(0), matrix = shape.queries * kernel.padded(shape.keys);
    at::Tensor out = at::empty({samples, shape.queries, in.width()}, packed.options());
    at::Tensor probabilities = at::empty({samples, heads, matrix}, packed.options());
    T *outs = mutable_values_of<T>(out), *ps = mutable_values_of<T>(probabilities);
    const T *qs = values_of<T>(in.query), *kvs = values_of<T>(in.packed);
    parallel_for(0, samples * heads, 1, [&](std::int64_t begin, std::int64_t end) {
      std::vector<float> scratch(kernel.scratch_floats(shape.queries, shape.keys, shape.head_width));
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t sample = i / heads, head = i % heads;
        const auto p = head_pointers(in, qs, kvs, sample, head);
        kernel.forward(shape, p.q, p.k, p.v, ps + i * matrix,
                       outs + sample * shape.queries * in.width() + head * shape.head_width, scratch.data());
      }
    });
    call.made({out, probabilities});
    ctx->save_for_backward({in.query, in.packed, probabilities});
    ctx->saved_data["heads"] = heads;
    return out;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const std::int64_t heads = ctx->saved_data["heads"].toInt();
    const Operands in{saved[0], saved[1], heads};
    const auto shape = in.shape();
    const auto& kernel = kernels::best().attention.of<T>();
    const std::int64_t samples = in.packed.size(0), matrix = shape.queries * kernel.padded(shape.keys);
    const at::Tensor grad = grads[0].contiguous();
    OwnOperator call("sluice::attention_backward", {grad, in.query, in.packed, saved[2]});
    const at::Tensor grad_query = in.is_self() ? at::Tensor() : at::empty_like(in.query);
    const at::Tensor grad_packed = at::empty_like(in.packed);
    const T *qs = values_of<T>(in.query), *kvs = values_of<T>(in.packed), *ps = values_of<T>(saved[2]),
            *gs = values_of<T>(grad);
    T *grad_qs = mutable_values_of<T>(grad_query), *grad_kvs = mutable_values_of<T>(grad_packed);
    parallel_for(0, samples * heads, 1, [&](std::int64_t begin, std::int64_t end) {
      std::vector<float> scratch(kernel.scratch_floats(shape.queries, shape.keys, shape.head_width));
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t sample = i / heads, head = i % heads;
        const auto p = head_pointers(in, qs, kvs, sample, head);
        const auto g = head_pointers(in, grad_qs, grad_kvs, sample, head);
        kernel.backward(shape, p.q, p.k, p.v, ps + i * matrix,
                        gs + sample * shape.queries * in.width() + head * shape.head_width, g.q, g.k, g.v,
                        scratch.data());
      }
    });
    call.made({grad_query, grad_packed});
    return {grad_query, grad_packed, {}};
  }
};

bool attention_is_fast(const Operands& in, const AttentionOptions& options, const ForwardContext& context) {
  const bool with_dropout = context.training && options.dropout > 0;
  return !with_dropout && !options.causal && suits_kernels(in.packed) && in.packed.numel() > 0 &&
         in.packed.size(1) <= kLongestSequence && (in.width() / in.heads) % kernels::kHeadStep == 0;
}

at::Tensor fast_attention(const std::optional<at::Tensor>& query, const at::Tensor& packed, std::int64_t heads) {
  return with_type_of(packed,
                      [&](auto number) { return AttentionFunction<decltype(number)>::apply(query, packed, heads); });
}

at::Tensor split_heads(const at::Tensor& x, std::int64_t heads) {
  return x.view({x.size(0), x.size(1), heads, -1}).transpose(1, 2);
}

// [queries, keys]: true if the key comes after the query.
at::Tensor later_keys(const at::Tensor& scores) {
  return at::ones({scores.size(2), scores.size(3)}, scores.options().dtype(at::kBool)).triu(1);
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

void settle_order_on_gpus(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  static std::once_flag is_settled;
  std::call_once(is_settled, [&] {
    // LibTorch's first choice on Hopper and Blackwell GPUs overwrites the order, so it is made before.
    static_cast<void>(at::_fused_sdp_choice(q, k, v));
    std::vector<std::int64_t> order;
    for (const at::SDPBackend backend : kOrderOnGpus) order.push_back(static_cast<std::int64_t>(backend));
    at::globalContext().setSDPPriorityOrder(order);
  });
}

// Without dropout. Fused kernels add up gradients in varying order, so deterministic runs avoid them.
at::Tensor attention_on_gpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal) {
  if (at::globalContext().deterministicAlgorithms()) {
    return std::get<0>(at::_scaled_dot_product_attention_math(q, k, v, {}, 0.0, causal));
  }
  settle_order_on_gpus(q, k, v);
  return at::scaled_dot_product_attention(q, k, v, {}, 0.0, causal);
}

at::Tensor plain_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                           at::TensorList operands, const AttentionOptions& options, const ForwardContext& context) {
  const at::Tensor q = split_heads(query, options.heads), k = split_heads(key, options.heads),
                   v = split_heads(value, options.heads);
  const bool with_dropout = context.training && options.dropout > 0;
  at::Tensor out;
  if (with_dropout || query.scalar_type() == at::kDouble || may_lose_not_finite(operands)) {
    const double scale = 1.0 / std::sqrt(static_cast<double>(q.size(3)));
    at::Tensor scores = at::matmul(q, k.transpose(2, 3)) * scale;
    if (options.causal) scores = scores.masked_fill(later_keys(scores), -std::numeric_limits<double>::infinity());
    const at::Tensor probabilities = at::softmax(scores, -1);
    out = at::matmul(dropout(probabilities, options.dropout, options.site, context), v);
  } else if (query.is_cuda()) {
    out = attention_on_gpu(q, k, v, options.causal);
  } else {
    out = at::scaled_dot_product_attention(q, k, v, {}, 0.0, options.causal);
  }
  return out.transpose(1, 2).reshape(query.sizes());
}

// As in PyTorch, causal attention counts masked scores, too.
void count(const at::Tensor& query, std::int64_t queries, const at::Tensor& packed, std::int64_t width) {
  const auto pairs = static_cast<double>(packed.size(0) * queries * packed.size(1));
  count_product(ProductKind::kAttention, 2 * pairs * static_cast<double>(width), query, packed);
}

}  // namespace

at::Tensor self_attention(const at::Tensor& packed, const AttentionOptions& options, const ForwardContext& context) {
  count(packed, packed.size(1), packed, packed.size(2) / 3);
  if (attention_is_fast({{}, packed, options.heads}, options, context)) {
    return fast_attention(std::nullopt, packed, options.heads);
  }
  const auto parts = packed.chunk(3, 2);
  return plain_attention(parts[0], parts[1], parts[2], {packed}, options, context);
}

at::Tensor cross_attention(const at::Tensor& query, const at::Tensor& packed, const AttentionOptions& options,
                           const ForwardContext& context) {
  check(!options.causal, "cross-attention without a causal mask");
  count(query, query.size(1), packed, packed.size(2) / 2);
  if (attention_is_fast({query, packed, options.heads}, options, context)) {
    return fast_attention(query, packed, options.heads);
  }
  const auto parts = packed.chunk(2, 2);
  return plain_attention(query, parts[0], parts[1], {query, packed}, options, context);
}

}  // namespace sluice::nn
