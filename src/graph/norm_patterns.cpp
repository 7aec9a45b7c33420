// norm_patterns: batch norms with what follows them, and root-mean-square norms.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include <ATen/ATen.h>

#include "graph/pattern_finder.h"
#include "nn/rms_norm.h"

namespace sluice::graph {
namespace {

using nn::Tensors;

// What follows a batch norm: a sum with as many values, ReLU, or both.
struct Followers {
  std::vector<int> nodes;
  ValueId residual = kNoValue;
  nn::Activation activation = nn::Activation::kNone;
};

int relu_of(const PatternFinder& finder, ValueId value) {
  return finder.sole_user(value, {"aten::relu", "aten::relu_"});
}

// value + other, or other + value. kNoValue: another sum.
ValueId other_term(const PatternFinder& finder, int sum, ValueId value) {
  const NodeArguments terms = finder.arguments(sum);
  const ValueId self = terms.value("self"), other = terms.value("other");
  if (self == kNoValue || other == kNoValue || self == other || finder.sizes(self) != finder.sizes(other))
    return kNoValue;
  if (terms.number("alpha").value_or(1) != 1) return kNoValue;
  if (self == value) return other;
  return finder.node(sum).target == "aten::add" ? self : kNoValue;  // add_ writes to its first term
}

Followers followers(const PatternFinder& finder, int norm) {
  Followers all;
  ValueId value = finder.output(norm);
  const int sum = finder.sole_user(value, {"aten::add", "aten::add_"});
  const ValueId other = sum < 0 ? kNoValue : other_term(finder, sum, value);
  if (other != kNoValue && relu_of(finder, finder.output(sum)) >= 0) {
    all.nodes = {sum};
    all.residual = other;
    value = finder.output(sum);
  }
  if (const int relu = relu_of(finder, value); relu >= 0) {
    all.nodes.push_back(relu);
    all.activation = nn::Activation::kRelu;
  }
  return all;
}

const Input* count_beside(const PatternFinder& finder, const Input& mean) {
  const std::string name = mean.name.substr(0, mean.name.rfind('.') + 1) + "num_batches_tracked";
  const auto& inputs = finder.program().inputs;
  const auto found = std::ranges::find_if(
      inputs, [&](const Input& one) { return one.kind == InputKind::kBuffer && one.name == name; });
  return found == inputs.end() ? nullptr : &*found;
}

// The node that counts batches, count += 1; -1: there is another one.
int counting_node(const PatternFinder& finder, const Input& count) {
  const std::vector<int>& writers = finder.writers(count.value);
  if (writers.size() != 1 || finder.node(writers.front()).target != "aten::add_") return -1;
  const bool is_here = std::ranges::binary_search(finder.section().nodes, writers.front());
  return is_here && finder.arguments(writers.front()).is("other", 1) ? writers.front() : -1;
}

// Nothing if nn::BatchNorm2d cannot stand for the node.
std::optional<PatternOptions::NormInputs> norm_inputs(const PatternFinder& finder, int n) {
  const NodeArguments arguments = finder.arguments(n);
  const ValueId x = arguments.value("input"), weight = arguments.value("weight"), bias = arguments.value("bias");
  PatternOptions::NormInputs inputs{finder.parameter(weight), finder.parameter(bias),
                                    finder.input(arguments.value("running_mean")),
                                    finder.input(arguments.value("running_var"))};
  if (x == kNoValue || finder.dims(x) < 2 || arguments.get<bool>("training") != true) return std::nullopt;
  if (inputs.mean == nullptr || inputs.variance == nullptr || !inputs.mean->is_saved) return std::nullopt;
  const bool is_plain = weight == kNoValue && bias == kNoValue;
  if (!is_plain && (bias == kNoValue || !finder.are_weights(weight, bias))) return std::nullopt;
  inputs.count = count_beside(finder, *inputs.mean);
  return inputs;
}

// The layer takes [N, C, H, W].
at::Tensor normalized(nn::BatchNorm2d& norm, const at::Tensor& x, const at::Tensor& residual, nn::Activation activation,
                      const nn::ForwardContext& context) {
  if (x.dim() == 4) return norm(x, context, activation, residual);
  const std::vector<std::int64_t> sizes{x.size(0), x.size(1), -1, 1};
  const at::Tensor rest = residual.defined() ? residual.reshape(sizes) : residual;
  return norm(x.reshape(sizes), context, activation, rest).reshape(x.sizes());
}

}  // namespace

bool match_batch_norm(PatternFinder& finder, int n) {
  if (!finder.options().is_training) return false;
  const auto inputs = norm_inputs(finder, n);
  if (!inputs) return false;
  const NodeArguments arguments = finder.arguments(n);
  const ValueId x = arguments.value("input");
  const Followers after = followers(finder, n);
  Pattern pattern{
      .name = "batch norm", .nodes = {n}, .inputs = {x, after.residual}, .may_be_written = finder.dims(x) == 4};
  pattern.nodes.insert(pattern.nodes.end(), after.nodes.begin(), after.nodes.end());
  if (inputs->count != nullptr) {
    pattern.nodes.push_back(counting_node(finder, *inputs->count));
    if (pattern.nodes.back() < 0) return false;
  }
  if (!finder.can_run(pattern)) return false;
  pattern.norm = finder.options().make_norm(*inputs, {.epsilon = arguments.number("eps").value_or(1e-5),
                                                      .momentum = arguments.number("momentum").value_or(0.1)});
  pattern.run = [norm = pattern.norm, activation = after.activation](const Tensors& inputs,
                                                                     const nn::ForwardContext& context) {
    return normalized(*norm, inputs[0], inputs[1], activation, context);
  };
  return finder.add(std::move(pattern));
}

namespace {

// rsqrt(mean(x^2) + epsilon)
struct InverseRoot {
  std::vector<int> nodes;
  ValueId x = kNoValue;
  double epsilon = 0;
};

std::optional<InverseRoot> inverse_root(const PatternFinder& finder, int rsqrt) {
  const int sum = finder.maker_for(rsqrt, finder.arguments(rsqrt).value("self"), {"aten::add"});
  if (sum < 0) return std::nullopt;
  const auto epsilon = finder.arguments(sum).number("other");
  const int mean = finder.maker_for(sum, finder.arguments(sum).value("self"), {"aten::mean"});
  if (!epsilon || mean < 0) return std::nullopt;
  const NodeArguments over = finder.arguments(mean);
  const int square = finder.maker_for(mean, over.value("self"), {"aten::pow"});
  if (square < 0 || over.common("dim", 0) != -1 || over.get<bool>("keepdim") != true) return std::nullopt;
  if (!finder.arguments(square).is("exponent", 2)) return std::nullopt;
  return InverseRoot{{square, mean, sum, rsqrt}, finder.arguments(square).value("self"), *epsilon};
}

// Mixed types are promoted to one that the layer does not give.
bool have_one_type(const PatternFinder& finder, std::initializer_list<ValueId> of) {
  const auto& values = finder.program().values;
  return std::ranges::all_of(of, [&](ValueId value) { return values[value].type == values[*of.begin()].type; });
}

}  // namespace

// weight * to(x * rsqrt(mean(x^2) + epsilon)), as Hugging Face writes it. `to` may be missing.
bool match_rms_norm(PatternFinder& finder, int rsqrt) {
  auto root = inverse_root(finder, rsqrt);
  if (!root || root->x == kNoValue) return false;
  const int product = finder.sole_user(finder.output(rsqrt), {"aten::mul"});
  if (product < 0 || finder.other_factor(product, finder.output(rsqrt)) != root->x) return false;
  root->nodes.push_back(product);
  ValueId scaled = finder.output(product);
  if (const int to = finder.sole_user(scaled, {"aten::to"});
      to >= 0 && have_one_type(finder, {scaled, finder.output(to)})) {
    root->nodes.push_back(to);
    scaled = finder.output(to);
  }
  const int last = finder.sole_user(scaled, {"aten::mul"});
  const ValueId weight = last < 0 ? kNoValue : finder.other_factor(last, scaled);
  if (weight == kNoValue || !finder.are_weights(weight, kNoValue) || finder.dims(weight) != 1) return false;
  if (!have_one_type(finder, {root->x, scaled, weight, finder.output(last)})) return false;
  root->nodes.push_back(last);
  return finder.add({.name = "rms norm",
                     .nodes = root->nodes,
                     .inputs = {root->x, weight},
                     .run = [epsilon = root->epsilon](const Tensors& inputs, const auto&) {
                       return nn::rms_norm(inputs[0], inputs[1], epsilon, inputs[0].scalar_type());
                     }});
}

}  // namespace sluice::graph
