#include "graph/aliases.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <string_view>

namespace sluice::graph {
namespace {

// Operators whose result is, or may be, a view of their first argument, or that argument itself.
constexpr std::array<std::string_view, 45> kViews{"alias",        "alpha_dropout",
                                                  "as_strided",   "broadcast_to",
                                                  "chunk",        "contiguous",
                                                  "detach",       "diagonal",
                                                  "dropout",      "expand",
                                                  "expand_as",    "feature_dropout",
                                                  "flatten",      "hsplit",
                                                  "movedim",      "moveaxis",
                                                  "narrow",       "numpy_T",
                                                  "permute",      "positive",
                                                  "ravel",        "real",
                                                  "reshape",      "reshape_as",
                                                  "select",       "slice",
                                                  "split",        "split_with_sizes",
                                                  "squeeze",      "swapaxes",
                                                  "swapdims",     "t",
                                                  "tensor_split", "to",
                                                  "transpose",    "type_as",
                                                  "unbind",       "unflatten",
                                                  "unfold",       "unsafe_chunk",
                                                  "unsafe_split", "unsqueeze",
                                                  "view",         "view_as",
                                                  "vsplit"};

std::string_view operator_name(const Node& node) {
  constexpr std::string_view kAten = "aten::";
  const std::string_view target = node.target;
  return target.starts_with(kAten) ? target.substr(kAten.size()) : target;
}

bool is_in_place(std::string_view name) {
  if (name.starts_with("__i") && name.ends_with("__")) return true;
  return name.ends_with('_') && !name.ends_with("__");
}

class Groups {
 public:
  explicit Groups(std::size_t values) : parent_(values) { std::iota(parent_.begin(), parent_.end(), 0); }
  int find(int value) {
    while (parent_[value] != value) value = parent_[value] = parent_[parent_[value]];
    return value;
  }
  void join(int a, int b) { parent_[find(b)] = find(a); }

 private:
  std::vector<int> parent_;
};

ValueId tensor_of(const NamedArgument& argument) {
  const auto* tensor = std::get_if<TensorArgument>(&argument.value);
  return tensor != nullptr ? tensor->value : kNoValue;
}

// Whether the results may share memory with the first argument.
bool may_share(const Node& node) {
  const std::string_view name = operator_name(node);
  const bool may_be_view = std::ranges::find(kViews, name) != kViews.end() || is_in_place(name);
  return may_be_view && !node.arguments.empty() && tensor_of(node.arguments.front()) != kNoValue;
}

}  // namespace

std::vector<ValueId> written_by(const Node& node) {
  const std::string_view name = operator_name(node);
  const bool is_norm = name == "batch_norm" || name == "instance_norm";
  std::vector<ValueId> values;
  for (std::size_t i = 0; i < node.arguments.size(); ++i) {
    const std::string& what = node.arguments[i].name;
    const bool is_statistic = is_norm && (what == "running_mean" || what == "running_var");
    const bool is_written = is_statistic || (i == 0 && is_in_place(name));
    if (const ValueId value = tensor_of(node.arguments[i]); is_written && value != kNoValue) values.push_back(value);
  }
  return values;
}

Aliases find_aliases(const Program& program) {
  Groups groups(program.values.size());
  for (const Node& node : program.nodes) {
    for (const ValueId output : node.outputs) {
      if (output != kNoValue && may_share(node)) groups.join(tensor_of(node.arguments.front()), output);
    }
  }
  Aliases aliases;
  for (int value = 0; value < static_cast<int>(program.values.size()); ++value)
    aliases.group.push_back(groups.find(value));
  aliases.writers.resize(program.values.size());
  for (int n = 0; n < static_cast<int>(program.nodes.size()); ++n) {
    for (const ValueId value : written_by(program.nodes[n])) {
      std::vector<int>& writers = aliases.writers[aliases.group[value]];
      if (writers.empty() || writers.back() != n) writers.push_back(n);
    }
  }
  return aliases;
}

}  // namespace sluice::graph
