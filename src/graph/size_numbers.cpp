#include "graph/size_numbers.h"

#include <string_view>

#include <ATen/ATen.h>

#include "core/error.h"

namespace sluice::graph {
namespace {

// The arithmetic of sizes.
std::int64_t number_of(const Node& node, const std::vector<std::int64_t>& of) {
  const std::string_view what = std::string_view(node.target).substr(std::string_view("_operator.").size());
  if (of.size() == 1 && what == "neg") return -of[0];
  if (of.size() != 2) throw ConfigError(node.refusal("is not supported for sizes"));
  if (what == "add") return of[0] + of[1];
  if (what == "sub") return of[0] - of[1];
  if (what == "mul") return of[0] * of[1];
  if ((what == "floordiv" || what == "mod") && of[1] > 0) {
    const std::int64_t quotient = of[0] / of[1] - (of[0] % of[1] < 0 ? 1 : 0);
    return what == "floordiv" ? quotient : of[0] - quotient * of[1];
  }
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
  return number_of(node, numbers);
}

}  // namespace sluice::graph
