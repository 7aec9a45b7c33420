#include "profiler/operator_flops.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace sluice::profiler {
namespace {

double numel(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), 1.0,
                         [](double all, std::int64_t size) { return all * static_cast<double>(size); });
}

double last(const Shape& shape) { return static_cast<double>(shape.at(shape.size() - 1)); }

double product(const Shape& left, const Shape& right) { return 2 * numel(left) * last(right); }

// Multiply-adds per value of the side that the kernel slides over. weight: [out, in / groups, ...], or [in, out /
// groups, ...] for a transposed convolution.
double taps(const Shape& weight) { return weight.at(0) == 0 ? 0 : numel(weight) / static_cast<double>(weight.at(0)); }

bool flag(const CallShapes& call, std::size_t position) {
  return position < call.flags.size() && !call.flags[position].empty() && call.flags[position].front();
}

double wanted_gradients(const CallShapes& call, std::size_t mask) {
  const auto& flags = call.flags.at(mask);
  return (flags.at(0) ? 1.0 : 0.0) + (flags.at(1) ? 1.0 : 0.0);  // the bias gradient is a sum
}

double first_two(const CallShapes& call) { return product(call.inputs.at(0), call.inputs.at(1)); }
double second_and_third(const CallShapes& call) { return product(call.inputs.at(1), call.inputs.at(2)); }

double plain_convolution(const CallShapes& call) { return 2 * numel(call.outputs.at(0)) * taps(call.inputs.at(1)); }

double convolution(const CallShapes& call) {
  constexpr std::size_t kTransposed = 6;
  return flag(call, kTransposed) ? 2 * numel(call.inputs.at(0)) * taps(call.inputs.at(1)) : plain_convolution(call);
}

double convolution_backward(const CallShapes& call) {
  constexpr std::size_t kTransposed = 7, kMask = 10;
  const Shape& slid_over = call.inputs.at(flag(call, kTransposed) ? 1 : 0);
  return 2 * numel(slid_over) * taps(call.inputs.at(2)) * wanted_gradients(call, kMask);
}

double slow_convolution_backward(const CallShapes& call) {
  constexpr std::size_t kMask = 6;
  return 2 * numel(call.inputs.at(0)) * taps(call.inputs.at(2)) * wanted_gradients(call, kMask);
}

// Scores and weighted values. query: [.., queries, width]; key, value: [.., keys, width of value].
double attention_of(const Shape& query, const Shape& key, const Shape& value) {
  const double scores = numel(query) * static_cast<double>(key.at(key.size() - 2));
  return 2 * (scores + scores / last(query) * last(value));
}

double attention(const CallShapes& call) {
  return attention_of(call.inputs.at(0), call.inputs.at(1), call.inputs.at(2));
}

// Recomputed scores; gradients of probabilities and values; gradients of queries and keys.
double attention_backward(const CallShapes& call) {
  const Shape &query = call.inputs.at(1), &key = call.inputs.at(2), &value = call.inputs.at(3);
  const double scores = numel(query) * static_cast<double>(key.at(key.size() - 2));
  return 2 * (3 * scores + 2 * scores / last(query) * last(value));
}

double linear(const CallShapes& call) {
  return 2 * numel(call.inputs.at(0)) * static_cast<double>(call.inputs.at(1).at(0));
}

// Inputs: output gradient [n, out, ..] and weight.
double own_input_gradient(const CallShapes& call) { return 2 * numel(call.inputs.at(0)) * taps(call.inputs.at(1)); }
// Inputs: output gradient and input; the result is the weight's gradient.
double own_weight_gradient(const CallShapes& call) { return 2 * numel(call.inputs.at(0)) * taps(call.outputs.at(0)); }

// Cost of one product. query: [n, queries, width], or empty. packed: the others side by side, [n, keys, 2 or 3 widths].
double own_attention_product(const Shape& query, const Shape& packed) {
  const bool is_self = query.empty();
  const double width = static_cast<double>(packed.at(2)) / (is_self ? 3 : 2);
  return 2 * static_cast<double>(packed.at(0) * packed.at(1) * (is_self ? packed.at(1) : query.at(1))) * width;
}
double own_attention(const CallShapes& call) { return 2 * own_attention_product(call.inputs.at(0), call.inputs.at(1)); }
// The probabilities are kept, so no product is repeated.
double own_attention_backward(const CallShapes& call) {
  return 4 * own_attention_product(call.inputs.at(1), call.inputs.at(2));
}

struct Named {
  std::string_view name;
  FlopFormula formula;
};

constexpr std::array kFormulas{
    Named{"aten::mm", first_two},
    Named{"aten::bmm", first_two},
    Named{"aten::addmm", second_and_third},
    Named{"aten::baddbmm", second_and_third},
    Named{"aten::convolution", convolution},
    Named{"aten::_convolution", convolution},
    Named{"aten::convolution_overrideable", convolution},
    Named{"aten::mkldnn_convolution", plain_convolution},
    Named{"aten::_slow_conv2d_forward", plain_convolution},
    Named{"aten::convolution_backward", convolution_backward},
    Named{"aten::_slow_conv2d_backward", slow_convolution_backward},
    Named{"aten::_scaled_dot_product_flash_attention_for_cpu", attention},
    Named{"aten::_scaled_dot_product_flash_attention_for_cpu_backward", attention_backward},
    Named{"mkldnn::_linear_pointwise", linear},
    Named{"sluice::winograd_convolution", plain_convolution},
    Named{"sluice::winograd_input_gradient", own_input_gradient},
    Named{"sluice::winograd_weight_gradient", own_weight_gradient},
    Named{"sluice::attention", own_attention},
    Named{"sluice::attention_backward", own_attention_backward},
};

}  // namespace

FlopFormula flop_formula(std::string_view name) {
  const auto* const found = std::ranges::find(kFormulas, name, &Named::name);
  return found == kFormulas.end() ? nullptr : found->formula;
}

}  // namespace sluice::profiler
