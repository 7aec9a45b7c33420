#include "graph/size_numbers.h"

#include <algorithm>
#include <string_view>

#include <ATen/ATen.h>

#include "core/error.h"

namespace sluice::graph {
namespace {

// Rounded down.
std::int64_t quotient_of(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

std::int64_t number_of(const Node& node, std::string_view what, std::int64_t a, std::int64_t b) {
  if (what == "add") return a + b;
  if (what == "sub") return a - b;
  if (what == "mul") return a * b;
  if (what == "max") return std::max(a, b);
  if (what == "min") return std::min(a, b);
  if (what == "floordiv" && b > 0) return quotient_of(a, b);
  if (what == "mod" && b > 0) return a - quotient_of(a, b) * b;
  throw ConfigError(node.refusal("is not supported for sizes"));
}

}  // namespace

bool is_number_node(const Node& node) {
  return node.target.starts_with("_operator.") || node.target == "aten::sym_size";
}

std::int64_t compute_number(const Node& node, const std::vector<c10::IValue>& arguments) {
  if (node.target == "aten::sym_size") return arguments.at(0).toTensor().size(arguments.at(1).toInt());
  std::vector<std::int64_t> numbers;
  for (const c10::IValue& argument : arguments) numbers.push_back(argument.toInt());
  const std::string_view what = std::string_view(node.target).substr(std::string_view("_operator.").size());
  if (numbers.size() == 1 && what == "neg") return -numbers[0];
  if (numbers.size() != 2) throw ConfigError(node.refusal("is not supported for sizes"));
  return number_of(node, what, numbers[0], numbers[1]);
}

}  // namespace sluice::graph
