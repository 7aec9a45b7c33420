#include "graph/patterns.h"

#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include <ATen/ATen.h>

#include "graph/pattern_finder.h"
#include "nn/conv.h"
#include "nn/gelu.h"
#include "nn/linear.h"
#include "nn/swiglu.h"

namespace sluice::graph {
namespace {

using nn::Tensors;

struct Products {
  ValueId x = kNoValue, weight = kNoValue, bias = kNoValue;
};

// Nothing if nn::linear() cannot stand for the node.
std::optional<Products> linear(const PatternFinder& finder, int n) {
  if (n < 0 || finder.node(n).target != "aten::linear" || finder.is_taken(n)) return std::nullopt;
  const NodeArguments arguments = finder.arguments(n);
  const Products all{arguments.value("input"), arguments.value("weight"), arguments.value("bias")};
  if (all.x == kNoValue || finder.dims(all.x) < 2 || !finder.are_weights(all.weight, all.bias)) return std::nullopt;
  if (finder.dims(all.weight) != 2) return std::nullopt;
  return all;
}

std::vector<at::Tensor> biases(const std::vector<at::Tensor>& given) {
  return given.front().defined() ? given : std::vector<at::Tensor>();
}

// Two products of one input as one.
bool can_join(const PatternFinder& finder, const Products& a, const Products& b) {
  return a.x == b.x && (a.bias == kNoValue) == (b.bias == kNoValue) &&
         finder.is_trained(a.weight) == finder.is_trained(b.weight) && finder.sizes(a.weight) == finder.sizes(b.weight);
}

struct KnownPattern {
  std::string_view target;
  bool (*match)(PatternFinder& finder, int n);
};
// In the order in which they are looked for.
constexpr std::array kKnown{
    KnownPattern{"aten::silu", match_swiglu},
    KnownPattern{"aten::linear", match_linear},
    KnownPattern{"aten::conv2d", match_convolution},
    KnownPattern{"aten::batch_norm", match_batch_norm},
    KnownPattern{"aten::rsqrt", match_rms_norm},
    KnownPattern{"aten::gelu", match_gelu},
    KnownPattern{"aten::neg", match_rotary},
    KnownPattern{"aten::scaled_dot_product_attention", match_attention},
};

}  // namespace

bool match_linear(PatternFinder& finder, int n) {
  const auto all = linear(finder, n);
  if (!all) return false;
  return finder.add(
      {.name = "linear",
       .nodes = {n},
       .inputs = {all->x, all->weight, all->bias},
       .run =
           [type = finder.options().activations](const Tensors& inputs, const nn::ForwardContext& context) {
             return nn::linear(inputs[0].to(type), {inputs[1]}, biases({inputs[2]}), context);
           },
       .may_be_written = finder.dims(all->x) == 2});
}

// silu(gate(x)) * up(x)
bool match_swiglu(PatternFinder& finder, int silu) {
  const ValueId gated = finder.arguments(silu).value("self");
  const int gate = finder.maker_for(silu, gated, {"aten::linear"});
  const int product = finder.sole_user(finder.output(silu), {"aten::mul"});
  if (gate < 0 || product < 0) return false;
  const ValueId self = finder.arguments(product).value("self"), other = finder.arguments(product).value("other");
  const int up = finder.maker_for(product, self == finder.output(silu) ? other : self, {"aten::linear"});
  const auto first = linear(finder, gate), second = linear(finder, up);
  if (!first || !second || !can_join(finder, *first, *second)) return false;
  return finder.add(
      {.name = "swiglu",
       .nodes = {gate, silu, up, product},
       .inputs = {first->x, first->weight, second->weight, first->bias, second->bias},
       .run = [type = finder.options().activations](const Tensors& inputs, const nn::ForwardContext& context) {
         return nn::swiglu(
             nn::linear(inputs[0].to(type), {inputs[1], inputs[2]}, biases({inputs[3], inputs[4]}), context));
       }});
}

bool match_convolution(PatternFinder& finder, int n) {
  const NodeArguments arguments = finder.arguments(n);
  const ValueId x = arguments.value("input"), weight = arguments.value("weight"), bias = arguments.value("bias");
  if (x == kNoValue || finder.dims(x) != 4 || !finder.are_weights(weight, bias)) return false;
  const std::vector<Extent>& sizes = finder.sizes(weight);
  const auto stride = arguments.common("stride", 1), padding = arguments.common("padding", 0);
  if (!stride || !padding || arguments.common("dilation", 1) != 1 || sizes[2].size != sizes[3].size) return false;
  return finder.add({.name = "convolution",
                     .nodes = {n},
                     .inputs = {x, weight, bias},
                     .run =
                         [type = finder.options().activations, stride = *stride, padding = *padding](
                             const Tensors& inputs, const nn::ForwardContext& context) {
                           const auto given = inputs[2].defined() ? std::optional(inputs[2]) : std::nullopt;
                           return nn::conv2d(inputs[0].to(type), inputs[1], given, stride, padding,
                                             context.weight_queue, context.transformed_weights,
                                             context.numerics.winograd);
                         },
                     .may_be_written = true});
}

bool match_gelu(PatternFinder& finder, int n) {
  const auto form = finder.arguments(n).get<std::string>("approximate");
  if (form && *form != "none") return false;
  return finder.add({.name = "gelu",
                     .nodes = {n},
                     .inputs = {finder.arguments(n).value("self")},
                     .run = [](const Tensors& inputs, const auto&) { return nn::gelu(inputs[0]); }});
}

std::vector<Pattern> find_patterns(const Program& program, const Aliases& aliases, const Section& section,
                                   const PatternOptions& options) {
  PatternFinder finder(program, aliases, section, options);
  for (const KnownPattern& known : kKnown) {
    for (const int n : section.nodes) {
      if (!finder.is_taken(n) && program.nodes[n].target == known.target) known.match(finder, n);
    }
  }
  return std::move(finder).found();
}

}  // namespace sluice::graph
