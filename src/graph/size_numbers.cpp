#include "graph/size_numbers.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>

#include <ATen/ATen.h>

#include "core/error.h"

namespace sluice::graph {
namespace {

using c10::IValue;

// Rounded down.
std::int64_t quotient_of(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

std::optional<IValue> of_whole(std::string_view what, std::int64_t a, std::int64_t b) {
  if (what == "add") return a + b;
  if (what == "sub") return a - b;
  if (what == "mul") return a * b;
  if (what == "max") return std::max(a, b);
  if (what == "min") return std::min(a, b);
  if (what == "floordiv" && b > 0) return quotient_of(a, b);
  if (what == "mod" && b > 0) return a - quotient_of(a, b) * b;
  return std::nullopt;
}

std::optional<IValue> of_real(std::string_view what, double a, double b) {
  if (what == "add") return a + b;
  if (what == "sub") return a - b;
  if (what == "mul") return a * b;
  if (what == "truediv") return a / b;
  if (what == "pow") return std::pow(a, b);
  if (what == "max") return std::max(a, b);
  if (what == "min") return std::min(a, b);
  return std::nullopt;
}

std::optional<IValue> comparison(std::string_view what, double a, double b) {
  if (what == "eq") return a == b;
  if (what == "ne") return a != b;
  if (what == "lt") return a < b;
  if (what == "le") return a <= b;
  if (what == "gt") return a > b;
  if (what == "ge") return a >= b;
  return std::nullopt;
}

std::optional<IValue> of_one(std::string_view what, const at::Scalar& a) {
  if (what == "neg") return a.isFloatingPoint() ? IValue(-a.toDouble()) : IValue(-a.toLong());
  if (what == "float") return a.toDouble();
  if (what == "sqrt") return std::sqrt(a.toDouble());
  if (what == "int") return static_cast<std::int64_t>(a.toDouble());
  return std::nullopt;
}

std::optional<IValue> of_two(std::string_view what, const at::Scalar& a, const at::Scalar& b) {
  if (const auto found = comparison(what, a.toDouble(), b.toDouble())) return found;
  const bool are_whole = !a.isFloatingPoint() && !b.isFloatingPoint();
  if (are_whole && what == "pow" && b.toLong() >= 0)
    return static_cast<std::int64_t>(std::llround(std::pow(a.toDouble(), b.toDouble())));
  return are_whole && what != "truediv" && what != "pow" ? of_whole(what, a.toLong(), b.toLong())
                                                         : of_real(what, a.toDouble(), b.toDouble());
}

}  // namespace

IValue compute_number(const Node& node, const std::vector<IValue>& arguments) {
  if (node.target == "aten::sym_size") return arguments.at(0).toTensor().size(arguments.at(1).toInt());
  if (node.target == "aten::sym_numel") return arguments.at(0).toTensor().numel();
  const std::string_view what = std::string_view(node.target).substr(std::string_view("_operator.").size());
  const auto number = arguments.size() == 1   ? of_one(what, arguments[0].toScalar())
                      : arguments.size() == 2 ? of_two(what, arguments[0].toScalar(), arguments[1].toScalar())
                                              : std::nullopt;
  if (!number) throw ConfigError(node.refusal("is not supported for sizes"));
  return *number;
}

}  // namespace sluice::graph
