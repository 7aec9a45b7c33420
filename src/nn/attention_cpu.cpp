#include "nn/attention_cpu.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "nn/own_operator.h"
#include "nn/parallel.h"

namespace sluice::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// With keys up to this number, keeping the probabilities is faster than to compute them again, and their memory is
// small.
constexpr std::int64_t kMostKeptKeys = 256;

template <typename T>
struct Pointers {
  T *q, *k, *v;
};

// One run of the query heads that share a key head.
struct AttentionPiece {
  kernels::AttentionShape shape;
  std::int64_t first_query, first_key, kv_head;
  std::int64_t probabilities;  // begin in the saved matrices
};

template <typename T>
Pointers<T> pointers(const AttentionOperands& in, const AttentionPiece& piece, T* query, T* packed) {
  const std::int64_t of_kv = piece.kv_head * in.head_width(), of_q = of_kv * (in.heads / in.kv_heads);
  T* row = packed + piece.first_key * in.packed.size(2);
  T* key = row + (in.is_self() ? in.width() : 0) + of_kv;
  T* value = key + in.kv_heads * in.head_width();
  return {in.is_self() ? row + of_q : query + piece.first_query * in.width() + of_q, key, value};
}

template <typename T>
class CpuAttention {
 public:
  CpuAttention(const AttentionOperands& in, const std::vector<AttentionRun>& runs) : in_(in) {
    const std::int64_t shared = in.heads / in.kv_heads, width = in.head_width();
    keeps_ = !in.causal && std::ranges::all_of(runs, [](const AttentionRun& run) { return run.keys <= kMostKeptKeys; });
    for (const AttentionRun& run : runs) {
      for (std::int64_t head = 0; head < in.kv_heads; ++head) {
        pieces_.push_back({shape_of(run, shared), run.first_query, run.first_key, head, probabilities_});
        if (keeps_) probabilities_ += shared * run.queries * short_.padded(run.keys);
      }
      scratch_ = std::max(scratch_, keeps_ ? short_.scratch_floats(run.queries, run.keys, width)
                                           : long_.scratch_floats(run.keys, width));
      covered_ += run.queries;
    }
  }

  // Number of values in all saved probabilities.
  [[nodiscard]] std::int64_t probabilities() const { return probabilities_; }
  [[nodiscard]] bool covers(std::int64_t rows) const { return covered_ == rows; }

  // body(piece, scratch) for each piece, in parallel.
  template <typename Body>
  void run(const Body& body) const {
    parallel_for(0, static_cast<std::int64_t>(pieces_.size()), 1, [&](std::int64_t begin, std::int64_t end) {
      std::vector<float> scratch(static_cast<std::size_t>(scratch_));
      for (std::int64_t i = begin; i < end; ++i) body(pieces_[static_cast<std::size_t>(i)], scratch.data());
    });
  }

  void forward(const AttentionPiece& piece, const Pointers<const T>& p, T* probabilities, T* out,
               float* scratch) const {
    if (keeps_) {
      short_.forward(piece.shape, p.q, p.k, p.v, probabilities + piece.probabilities, out + output_of(piece), scratch);
    } else {
      long_.forward(piece.shape, p.q, p.k, p.v, out + output_of(piece), scratch);
    }
  }
  void backward(const AttentionPiece& piece, const Pointers<const T>& p, const T* probabilities, const T* grad_out,
                const Pointers<T>& g, float* scratch) const {
    const T* grad = grad_out + output_of(piece);
    if (keeps_) {
      short_.backward(piece.shape, p.q, p.k, p.v, probabilities + piece.probabilities, grad, g.q, g.k, g.v, scratch);
    } else {
      long_.backward(piece.shape, p.q, p.k, p.v, grad, g.q, g.k, g.v, scratch);
    }
  }

 private:
  // Begin of the piece's columns in a tensor like the output.
  [[nodiscard]] std::int64_t output_of(const AttentionPiece& piece) const {
    return piece.first_query * in_.width() + piece.kv_head * (in_.heads / in_.kv_heads) * in_.head_width();
  }
  [[nodiscard]] kernels::AttentionShape shape_of(const AttentionRun& run, std::int64_t shared) const {
    return {.queries = run.queries,
            .keys = run.keys,
            .head_width = in_.head_width(),
            .q_stride = in_.is_self() ? in_.packed.size(2) : in_.width(),
            .kv_stride = in_.packed.size(2),
            .out_stride = in_.width(),
            .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(in_.head_width()))),
            .query_heads = shared,
            .causal = in_.causal};
  }

  const AttentionOperands& in_;
  const kernels::AttentionKernels<T>& short_ = kernels::best().attention.of<T>();
  const kernels::LongAttentionKernels<T>& long_ = kernels::best().long_attention.of<T>();
  bool keeps_ = false;
  std::vector<AttentionPiece> pieces_;
  std::int64_t probabilities_ = 0, scratch_ = 0, covered_ = 0;
};

at::Tensor zeros_or_empty(bool is_covered, at::IntArrayRef sizes, const at::TensorOptions& options) {
  return is_covered ? at::empty(sizes, options) : at::zeros(sizes, options);
}

template <typename T>
class AttentionFunction : public torch::autograd::Function<AttentionFunction<T>> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const std::optional<at::Tensor>& query, const at::Tensor& packed,
                            const AttentionOperands& operands, const std::vector<AttentionRun>& runs) {
    const AttentionOperands in{query ? query->contiguous() : at::Tensor(),
                               packed.contiguous(),
                               operands.groups,
                               operands.heads,
                               operands.kv_heads,
                               operands.causal};
    OwnOperator call("sluice::attention", {in.query, in.packed});
    const CpuAttention<T> work(in, runs);
    const std::int64_t rows = packed.size(0) * in.queries();
    at::Tensor out = zeros_or_empty(work.covers(rows), {packed.size(0), in.queries(), in.width()}, packed.options());
    at::Tensor probabilities = at::empty({work.probabilities()}, packed.options());
    T *outs = mutable_values_of<T>(out), *ps = mutable_values_of<T>(probabilities);
    const T *qs = values_of<T>(in.query), *kvs = values_of<T>(in.packed);
    work.run([&](const AttentionPiece& piece, float* scratch) {
      const auto p = pointers(in, piece, qs, kvs);
      work.forward(piece, p, ps, outs, scratch);
    });
    call.made({out, probabilities});
    ctx->save_for_backward({in.query, in.packed, probabilities, in.groups});
    ctx->saved_data["heads"] = in.heads;
    ctx->saved_data["kv_heads"] = in.kv_heads;
    ctx->saved_data["causal"] = in.causal;
    return out;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const AttentionOperands in{saved[0],
                               saved[1],
                               saved[3],
                               ctx->saved_data["heads"].toInt(),
                               ctx->saved_data["kv_heads"].toInt(),
                               ctx->saved_data["causal"].toBool()};
    const at::Tensor grad = grads[0].contiguous();
    OwnOperator call("sluice::attention_backward", {grad, in.query, in.packed, saved[2]});
    const CpuAttention<T> work(in, in.runs().value());
    const bool is_covered = work.covers(in.packed.size(0) * in.queries());
    const at::Tensor grad_query = in.is_self() ? at::Tensor() : at::empty_like(in.query);
    const at::Tensor grad_packed = zeros_or_empty(is_covered, in.packed.sizes(), in.packed.options());
    const T *qs = values_of<T>(in.query), *kvs = values_of<T>(in.packed), *ps = values_of<T>(saved[2]),
            *gs = values_of<T>(grad);
    T *grad_qs = mutable_values_of<T>(grad_query), *grad_kvs = mutable_values_of<T>(grad_packed);
    work.run([&](const AttentionPiece& piece, float* scratch) {
      const auto p = pointers(in, piece, qs, kvs);
      const auto g = pointers(in, piece, grad_qs, grad_kvs);
      work.backward(piece, p, ps, gs, g, scratch);
    });
    call.made({grad_query, grad_packed});
    return {grad_query, grad_packed, {}, {}};
  }
};

}  // namespace

std::optional<std::vector<AttentionRun>> AttentionOperands::runs() const {
  std::vector<AttentionRun> runs;
  const std::int64_t samples = packed.size(0), keys = packed.size(1);
  if (!groups.defined()) {
    for (std::int64_t i = 0; i < samples; ++i) runs.push_back({i * queries(), queries(), i * keys, keys});
    return runs;
  }
  const at::Tensor rows = groups.contiguous();
  const auto* group = rows.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < samples; ++i, group += keys) {
    std::vector<std::int64_t> seen;
    for (std::int64_t first = 0, end = 0; first < keys; first = end) {
      while (end < keys && group[end] == group[first]) ++end;
      if (group[first] == 0) continue;
      if (std::ranges::find(seen, group[first]) != seen.end()) return std::nullopt;
      seen.push_back(group[first]);
      runs.push_back({i * keys + first, end - first, i * keys + first, end - first});
    }
  }
  return runs;
}

at::Tensor attention_on_cpu(const AttentionOperands& operands, const std::vector<AttentionRun>& runs) {
  const auto query = operands.is_self() ? std::nullopt : std::optional(operands.query);
  return with_type_of(operands.packed, [&](auto number) {
    return AttentionFunction<decltype(number)>::apply(query, operands.packed, operands, runs);
  });
}

}  // namespace sluice::nn
