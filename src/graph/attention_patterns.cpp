// attention_patterns: attention by the kernels of src/nn if its mask hides nothing or later positions alone, and
// rotary position embeddings. A mask's values are read in the call.
#include <cmath>
#include <optional>
#include <utility>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "graph/pattern_finder.h"
#include "nn/attention.h"

namespace sluice::graph {
namespace {

using nn::Tensors;

// Nodes that repeat key heads for several query heads, and what they repeat.
struct Repeated {
  std::vector<int> nodes;
  ValueId value = kNoValue;
};

// reshape(expand(unsqueeze(value, 2))) with slices that take everything, as Hugging Face writes it.
Repeated repeated(const PatternFinder& finder, int user, ValueId value) {
  Repeated found;
  const auto step = [&](std::string_view target) {
    const int n = finder.maker_for(user, value, {target});
    if (n < 0) return false;
    found.nodes.push_back(n);
    user = n;
    value = finder.arguments(n).value("self");
    return true;
  };
  const auto skip_slices = [&] {
    while (true) {
      const int n = finder.maker_for(user, value, {"aten::slice"});
      if (n < 0 || finder.sizes(finder.output(n)) != finder.sizes(finder.arguments(n).value("self"))) return;
      step("aten::slice");
    }
  };
  Repeated none{.nodes = {}, .value = value};
  if (!step("aten::reshape") || !step("aten::expand")) return none;
  skip_slices();
  if (!step("aten::unsqueeze") || !finder.arguments(found.nodes.back()).is("dim", 2)) return none;
  skip_slices();
  if (finder.dims(value) != 4) return none;
  found.value = value;
  return found;
}

enum class Sees { kAll, kEarlier, kOther };

// mask: bool [.., T, T], true if the query sees the key; undefined: all.
Sees what_is_seen(const at::Tensor& mask, bool is_causal, std::int64_t queries, std::int64_t keys) {
  if (queries != keys) return Sees::kOther;
  if (!mask.defined()) return is_causal ? Sees::kEarlier : Sees::kAll;
  if (is_causal || mask.scalar_type() != at::kBool || !mask.is_cpu()) return Sees::kOther;
  if (mask.all().item<bool>()) return Sees::kAll;
  const at::Tensor earlier = at::ones({queries, keys}, mask.options()).tril();
  return mask.eq(earlier).all().item<bool>() ? Sees::kEarlier : Sees::kOther;
}

at::Tensor joined_heads(const at::Tensor& x) { return x.transpose(1, 2).flatten(2); }

at::Tensor repeat_heads(const at::Tensor& x, std::int64_t heads) {
  return x.size(1) == heads ? x : x.repeat_interleave(heads / x.size(1), 1);
}

struct AttentionNumbers {
  bool is_causal = false;
  std::optional<double> scale = std::nullopt;
  at::ScalarType type = at::kFloat;  // of products
};

// inputs: query, key, value [N, heads, T, width] and the mask, which may be undefined.
at::Tensor attention(const Tensors& inputs, const AttentionNumbers& numbers, const nn::ForwardContext& context) {
  const at::Tensor query = inputs[0].to(numbers.type), key = inputs[1].to(numbers.type),
                   value = inputs[2].to(numbers.type);
  const std::int64_t heads = query.size(1), width = query.size(3);
  const double usual = 1 / std::sqrt(static_cast<double>(width));
  const bool is_usual = std::abs(numbers.scale.value_or(usual) - usual) < 1e-6 * usual && value.size(3) == width;
  if (is_usual && key.size(0) == query.size(0) && value.size(0) == query.size(0) && nn::has_own_kernel(query)) {
    const Sees sees = what_is_seen(inputs[3], numbers.is_causal, query.size(2), key.size(2));
    if (sees != Sees::kOther) {
      const at::Tensor packed = at::cat({joined_heads(query), joined_heads(key), joined_heads(value)}, 2);
      const nn::AttentionOptions options{.heads = heads, .causal = sees == Sees::kEarlier, .kv_heads = key.size(1)};
      const at::Tensor out = nn::self_attention(packed, options, context);
      return out.view({out.size(0), out.size(1), heads, width}).transpose(1, 2);
    }
  }
  return nn::fused_attention(query, repeat_heads(key, heads), repeat_heads(value, heads), inputs[3], numbers.is_causal,
                             numbers.scale);
}

// x * cosine + rotated(x) * sine; rotated: the negative second half before the first.
class RotaryFunction : public torch::autograd::Function<RotaryFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const at::Tensor& cosine,
                            const at::Tensor& sine) {
    ctx->save_for_backward({cosine, sine});
    return turned(x, cosine, sine, -1);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    return {turned(grads[0], saved[0], saved[1], 1), {}, {}};
  }

 private:
  // sign: -1 turns forward, 1 back. The sines of both halves are those of the half that they are multiplied with.
  static at::Tensor turned(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine, double sign) {
    const std::int64_t half = x.size(-1) / 2;
    at::Tensor out = x * cosine;
    const at::Tensor first_sine = sine.narrow(-1, 0, half), second_sine = sine.narrow(-1, half, half);
    const bool is_forward = sign < 0;
    out.narrow(-1, 0, half).addcmul_(x.narrow(-1, half, half), is_forward ? first_sine : second_sine, sign);
    out.narrow(-1, half, half).addcmul_(x.narrow(-1, 0, half), is_forward ? second_sine : first_sine, -sign);
    return out;
  }
};

at::Tensor rotate(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine) {
  if (!cosine.requires_grad() && !sine.requires_grad()) return RotaryFunction::apply(x, cosine, sine);
  const auto halves = x.chunk(2, -1);
  return x * cosine + at::cat({-halves[1], halves[0]}, -1) * sine;
}

// The part of x from `begin` to `end` in the last dimension; end: the width, or none.
bool is_half(const PatternFinder& finder, int n, ValueId x, std::int64_t begin, std::int64_t end) {
  const NodeArguments part = finder.arguments(n);
  const auto dims = static_cast<double>(finder.dims(x));
  if (part.value("self") != x || !(part.is("dim", dims - 1) || part.is("dim", -1))) return false;
  const double last = part.number("end").value_or(static_cast<double>(end));
  const bool ends_there = last == static_cast<double>(end) || (end == finder.sizes(x).back().size && last > end);
  return part.number("start").value_or(0) == static_cast<double>(begin) && ends_there;
}

}  // namespace

bool match_attention(PatternFinder& finder, int n) {
  const NodeArguments arguments = finder.arguments(n);
  const ValueId query = arguments.value("query"), mask = arguments.value("attn_mask");
  if (query == kNoValue || finder.dims(query) != 4) return false;
  if (finder.options().is_training && arguments.number("dropout_p").value_or(0) > 0) return false;
  if (arguments.get<bool>("enable_gqa").value_or(false)) return false;
  if (mask != kNoValue && finder.dims(mask) > 4) return false;
  const Repeated keys = repeated(finder, n, arguments.value("key")),
                 values = repeated(finder, n, arguments.value("value"));
  const bool are_alike = keys.nodes.empty() == values.nodes.empty();
  Pattern pattern{.name = "attention", .nodes = {n}};
  pattern.inputs = {query, are_alike ? keys.value : arguments.value("key"),
                    are_alike ? values.value : arguments.value("value"), mask};
  if (are_alike) {
    pattern.nodes.insert(pattern.nodes.end(), keys.nodes.begin(), keys.nodes.end());
    pattern.nodes.insert(pattern.nodes.end(), values.nodes.begin(), values.nodes.end());
  }
  const AttentionNumbers numbers{arguments.get<bool>("is_causal").value_or(false), arguments.number("scale"),
                                 finder.options().activations};
  pattern.run = [numbers](const Tensors& inputs, const nn::ForwardContext& context) {
    return attention(inputs, numbers, context);
  };
  return finder.add(std::move(pattern));
}

namespace {

// cat(-x[half:], x[:half])
struct Turned {
  std::vector<int> nodes;
  ValueId x = kNoValue, value = kNoValue;
};

bool are_halves(const PatternFinder& finder, int first, int second, ValueId x) {
  const Extent& width = finder.sizes(x).back();
  return width.formula.empty() && width.size % 2 == 0 && is_half(finder, first, x, 0, width.size / 2) &&
         is_half(finder, second, x, width.size / 2, width.size);
}

std::optional<Turned> turned_halves(const PatternFinder& finder, int neg) {
  const int second = finder.maker_for(neg, finder.arguments(neg).value("self"), {"aten::slice"});
  const int joined = finder.sole_user(finder.output(neg), {"aten::cat"});
  if (second < 0 || joined < 0) return std::nullopt;
  const auto parts = finder.arguments(joined).get<std::vector<TensorArgument>>("tensors");
  if (!parts || parts->size() != 2 || parts->front().value != finder.output(neg)) return std::nullopt;
  const int first = finder.maker_for(joined, parts->back().value, {"aten::slice"});
  const ValueId x = finder.arguments(second).value("self");
  if (first < 0 || x == kNoValue || finder.dims(x) != 4) return std::nullopt;
  return are_halves(finder, first, second, x)
             ? std::optional(Turned{{second, neg, first, joined}, x, finder.output(joined)})
             : std::nullopt;
}

}  // namespace

// x * cosine + cat(-x[half:], x[:half]) * sine
bool match_rotary(PatternFinder& finder, int neg) {
  const auto turned = turned_halves(finder, neg);
  if (!turned) return false;
  const int with_sine = finder.sole_user(turned->value, {"aten::mul"});
  const int sum = with_sine < 0 ? -1 : finder.sole_user(finder.output(with_sine), {"aten::add"});
  if (sum < 0 || finder.arguments(sum).number("alpha").value_or(1) != 1) return false;
  const int with_cosine = finder.maker_for(sum, finder.arguments(sum).value("self"), {"aten::mul"});
  if (with_cosine < 0 || with_cosine == with_sine) return false;
  const ValueId x = turned->x, cosine = finder.other_factor(with_cosine, x),
                sine = finder.other_factor(with_sine, turned->value);
  if (cosine == kNoValue || sine == kNoValue || finder.sizes(cosine) != finder.sizes(sine)) return false;
  if (finder.sizes(cosine).back() != finder.sizes(x).back()) return false;
  if (finder.sizes(finder.output(sum)) != finder.sizes(x)) return false;
  Pattern pattern{.name = "rotary positions",
                  .nodes = turned->nodes,
                  .inputs = {x, cosine, sine},
                  .run = [](const Tensors& inputs, const auto&) { return rotate(inputs[0], inputs[1], inputs[2]); }};
  pattern.nodes.insert(pattern.nodes.end(), {with_sine, with_cosine, sum});
  return finder.add(std::move(pattern));
}

}  // namespace sluice::graph
