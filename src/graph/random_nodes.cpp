#include "graph/random_nodes.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include <ATen/ATen.h>

#include "core/concat.h"
#include "core/error.h"
#include "graph/node_arguments.h"
#include "nn/dropout.h"

namespace sluice::graph {
namespace {

bool is_dropout(const Node& node) { return node.target == "aten::dropout" || node.target == "aten::dropout_"; }
bool is_channel_dropout(const Node& node) {
  return node.target == "aten::feature_dropout" || node.target == "aten::feature_dropout_";
}
bool is_attention(const Node& node) { return node.target == "aten::scaled_dot_product_attention"; }
bool is_bernoulli(const Node& node) { return node.target == "aten::bernoulli_" && node.overload == "float"; }

std::optional<std::size_t> position_of(const c10::FunctionSchema& schema, const char* name) {
  const auto position = schema.argumentIndexWithName(name);
  return position ? std::optional<std::size_t>(*position) : std::nullopt;
}

// The formulas that stand for a batch: the first extents of the model's inputs.
std::set<std::string> batch_formulas(const Program& program) {
  std::set<std::string> formulas;
  for (const Input& input : program.inputs) {
    const std::vector<Extent>& sizes = program.values[input.value].sizes;
    if (input.kind == InputKind::kUser && !sizes.empty() && !sizes.front().formula.empty())
      formulas.insert(sizes.front().formula);
  }
  return formulas;
}

// Calls make(x) with the samples in the first dimension, one entry for each.
template <typename Make>
at::Tensor by_sample(const at::Tensor& x, int batch_dim, const nn::ForwardContext& context, const Node& node,
                     const Make& make) {
  const std::int64_t samples = context.sample_ids.defined() ? context.sample_ids.size(0) : 1;
  at::Tensor moved = x.movedim(batch_dim, 0);
  if (moved.size(0) == samples) return make(moved).movedim(0, batch_dim);
  if (samples == 0 || moved.size(0) % samples != 0) {
    throw ConfigError(node.described(), " draws numbers for a tensor of ", x.sizes(), ", in which the ", samples,
                      " samples are not found; give it one entry for each sample, or leave it out");
  }
  std::vector<std::int64_t> sizes = moved.sizes().vec();
  sizes.front() /= samples;
  sizes.insert(sizes.begin(), samples);
  return make(moved.reshape(sizes)).reshape(moved.sizes()).movedim(0, batch_dim);
}

at::Tensor keyed_factors(const at::Tensor& like, double p, int batch_dim, const nn::ForwardContext& context,
                         const Node& node) {
  return by_sample(like, batch_dim, context, node,
                   [&](const at::Tensor& x) { return nn::dropout_mask(x, p, node.name, context); });
}

at::Tensor attention_with_dropout(const Node& node, const std::vector<c10::IValue>& arguments,
                                  const nn::ForwardContext& context) {
  const at::Tensor query = arguments.at(0).toTensor(),
                   mask = arguments.at(3).isTensor() ? arguments.at(3).toTensor() : at::Tensor();
  at::Tensor key = arguments.at(1).toTensor(), value = arguments.at(2).toTensor();
  const double p = arguments.at(4).toDouble();
  const double scale =
      arguments.at(6).isNone() ? 1 / std::sqrt(static_cast<double>(query.size(-1))) : arguments.at(6).toDouble();
  if (arguments.at(7).toBool() && key.size(-3) != query.size(-3)) {
    const std::int64_t group = query.size(-3) / key.size(-3);
    key = key.repeat_interleave(group, -3);
    value = value.repeat_interleave(group, -3);
  }
  at::Tensor scores = query.matmul(key.transpose(-2, -1)) * scale;
  const double none = -std::numeric_limits<double>::infinity();
  if (arguments.at(5).toBool()) {
    const at::Tensor sees = at::ones({query.size(-2), key.size(-2)}, query.options().dtype(at::kBool)).tril();
    scores = scores.masked_fill(sees.logical_not(), none);
  }
  if (mask.defined())
    scores = mask.scalar_type() == at::kBool ? scores.masked_fill(mask.logical_not(), none) : scores + mask;
  const at::Tensor weights = scores.softmax(-1);
  return (weights * keyed_factors(weights.detach(), p, 0, context, node)).matmul(value);
}

// numbers: uniform from [0, 1). second(): others.
template <typename Second>
at::Tensor distributed(const Node& node, const std::vector<c10::IValue>& arguments, const at::Tensor& numbers,
                       const Second& second) {
  const bool has_low = node.overload == "low";
  if (node.target == "aten::randint") {
    const std::int64_t low = has_low ? arguments.at(0).toInt() : 0, high = arguments.at(has_low ? 1 : 0).toInt();
    return (numbers * (high - low)).floor() + low;
  }
  if (node.target == "aten::uniform_") {
    const double from = arguments.at(1).toDouble(), to = arguments.at(2).toDouble();
    return numbers * (to - from) + from;
  }
  if (node.target == "aten::bernoulli") {
    const c10::IValue& p = arguments.at(node.overload.empty() ? 0 : 1);
    return p.isTensor() ? numbers.lt(p.toTensor()) : numbers.lt(p.toScalar());
  }
  if (!is_one_of(node, {"aten::randn", "aten::randn_like", "aten::normal_"})) return numbers;
  // Box and Muller (1958).
  constexpr double kCircle = 2 * std::numbers::pi;
  const at::Tensor normal = (numbers.neg().log1p() * -2).sqrt() * (second() * kCircle).cos();
  return node.target == "aten::normal_" ? normal * arguments.at(2).toDouble() + arguments.at(1).toDouble() : normal;
}

at::Tensor noise(const Node& node, const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments,
                 int batch_dim, const nn::ForwardContext& context) {
  const at::NoGradGuard no_grad;
  const bool is_in_place = node.target.ends_with('_');
  std::vector<c10::IValue> stack = arguments;
  if (!is_in_place) op.callBoxed(stack);  // for its sizes and type
  const at::Tensor out = (is_in_place ? arguments : stack).at(0).toTensor();
  const at::Tensor like = at::empty_like(out, out.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  const auto uniform = [&](const std::string& site) {
    return by_sample(like, batch_dim, context, node,
                     [&](const at::Tensor& x) { return nn::keyed_uniform(x, site, context); });
  };
  out.copy_(distributed(node, arguments, uniform(node.name), [&] { return uniform(concat(node.name, "/angle")); }));
  return out;
}

}  // namespace

void set_for_evaluation(const Node& node, const c10::FunctionSchema& schema, std::vector<c10::IValue>& arguments) {
  const bool has_mode = is_dropout(node) || is_channel_dropout(node) || node.target == "aten::batch_norm" ||
                        node.target == "aten::rrelu" || node.target == "aten::alpha_dropout";
  for (const char* name : {"train", "training"}) {
    if (const auto position = position_of(schema, name); position && has_mode) arguments[*position] = false;
  }
  if (is_attention(node)) arguments[*position_of(schema, "dropout_p")] = 0.0;
}

bool is_random(const Node& node, const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments) {
  const c10::FunctionSchema& schema = op.schema();
  if (is_dropout(node) || is_channel_dropout(node))
    return arguments[*position_of(schema, "train")].toBool() && arguments[*position_of(schema, "p")].toDouble() > 0;
  if (is_attention(node)) return arguments[*position_of(schema, "dropout_p")].toDouble() > 0;
  const bool is_recurrent = node.target == "aten::lstm" || node.target == "aten::gru" ||
                            node.target == "aten::rnn_tanh" || node.target == "aten::rnn_relu";
  if (is_recurrent) {
    const auto dropout = position_of(schema, "dropout"), train = position_of(schema, "train");
    return dropout && train && arguments[*train].toBool() && arguments[*dropout].toDouble() > 0;
  }
  return op.hasTag(at::Tag::nondeterministic_seeded);
}

bool is_noise(const Node& node) {
  if (node.target == "aten::bernoulli") return node.overload.empty() || node.overload == "p";
  if (node.target == "aten::randint") return node.overload.empty() || node.overload == "low";
  return node.overload.empty() && is_one_of(node, {"aten::rand", "aten::randn", "aten::rand_like", "aten::randn_like",
                                                   "aten::uniform_", "aten::normal_"});
}

bool is_supported_random(const Node& node) {
  return is_dropout(node) || is_channel_dropout(node) || is_attention(node) || is_bernoulli(node) || is_noise(node);
}

int batch_dim_of(const Program& program, const Node& node) {
  const std::set<std::string> batches = batch_formulas(program);
  const std::vector<Extent>& sizes = program.values[node.outputs.front()].sizes;
  for (std::size_t dim = 0; dim < sizes.size(); ++dim) {
    const bool has_batch = std::ranges::any_of(
        batches, [&](const std::string& batch) { return sizes[dim].formula.find(batch) != std::string::npos; });
    if (has_batch) return static_cast<int>(dim);
  }
  return 0;
}

at::Tensor run_random(const Node& node, const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments,
                      int batch_dim, const nn::ForwardContext& context) {
  if (is_noise(node)) return noise(node, op, arguments, batch_dim, context);
  if (is_attention(node)) return attention_with_dropout(node, arguments, context);
  at::Tensor x = arguments.at(0).toTensor();
  const double p = arguments.at(1).toDouble();
  if (is_bernoulli(node)) {
    const at::NoGradGuard no_grad;
    return x.copy_(keyed_factors(x, 1 - p, batch_dim, context, node).ne(0));
  }
  at::Tensor like = x.detach();
  if (is_channel_dropout(node)) {
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(x.dim()), 1);
    sizes[0] = x.size(0), sizes[1] = x.size(1);
    like = at::empty(sizes, x.options());
  }
  const at::Tensor factors = keyed_factors(like, p, batch_dim, context, node);
  return node.target.ends_with('_') ? x.mul_(factors) : x.mul(factors);
}

}  // namespace sluice::graph
