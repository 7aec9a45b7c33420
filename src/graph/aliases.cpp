#include "graph/aliases.h"

#include <algorithm>
#include <numeric>
#include <string_view>

#include "graph/node_arguments.h"

namespace sluice::graph {
namespace {

// Operators whose result is, or may be, a view of their first argument, or that argument itself.
constexpr std::string_view kViews =
    " adjoint alias alpha_dropout as_strided atleast_1d atleast_2d atleast_3d broadcast_tensors "
    "broadcast_to chunk contiguous detach diagonal dropout dsplit expand expand_as feature_dropout "
    "flatten hsplit imag mH mT matrix_H meshgrid moveaxis movedim narrow numpy_T permute positive ravel "
    "real reshape reshape_as select slice split split_with_sizes squeeze swapaxes swapdims t "
    "tensor_split to transpose type_as unbind unflatten unfold unsafe_chunk unsafe_split "
    "unsafe_split_with_sizes unsqueeze view view_as view_as_complex view_as_real vsplit ";

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

// Tensors of the first argument with which the results may share memory.
std::vector<ValueId> may_share(const Node& node) {
  const std::string_view name = operator_name(node);
  const bool may_be_view = is_listed(name, kViews) || is_in_place(name);
  if (!may_be_view || node.arguments.empty()) return {};
  if (const ValueId value = tensor_of(node.arguments.front()); value != kNoValue) return {value};
  std::vector<ValueId> values;
  if (const auto* list = std::get_if<std::vector<TensorArgument>>(&node.arguments.front().value)) {
    for (const TensorArgument& tensor : *list) {
      if (tensor.value != kNoValue) values.push_back(tensor.value);
    }
  }
  return values;
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

bool may_be_view(const Node& node) { return !may_share(node).empty(); }

std::vector<bool> seen_orders(const Program& program, const Aliases& aliases) {
  constexpr std::string_view kByOrder = " contiguous flatten ravel reshape reshape_as view view_as as_strided ";
  std::vector<bool> seen(program.values.size(), false);
  for (int n = 0; n < static_cast<int>(program.nodes.size()); ++n) {
    const Node& node = program.nodes[n];
    if (!is_listed(operator_name(node), kByOrder)) continue;
    for (const ValueId value : may_share(node)) {
      const std::vector<int>& writers = aliases.writers[aliases.group[value]];
      if (!writers.empty() && writers.back() > n) seen[aliases.group[value]] = true;
    }
  }
  const std::vector<bool> of_group = seen;
  for (std::size_t value = 0; value < seen.size(); ++value) seen[value] = of_group[aliases.group[value]];
  return seen;
}

std::vector<int> makers_in(const Program& program) {
  std::vector<int> makers(program.values.size(), -1);
  for (int n = 0; n < static_cast<int>(program.nodes.size()); ++n) {
    for (const ValueId value : program.nodes[n].outputs) {
      if (value != kNoValue) makers[value] = n;
    }
  }
  return makers;
}

Aliases find_aliases(const Program& program) {
  Groups groups(program.values.size());
  for (const Node& node : program.nodes) {
    for (const ValueId value : may_share(node)) {
      for (const ValueId output : node.outputs) {
        if (output != kNoValue) groups.join(value, output);
      }
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

std::vector<int> differentiated_inputs(const Program& program, const Aliases& aliases) {
  const std::vector<int> maker = makers_in(program);
  std::vector<bool> is_seen(program.values.size(), false);
  std::vector<ValueId> open{program.outputs.front()};
  std::vector<int> inputs;
  const auto take = [&](int n) {
    if (n < 0 || program.nodes[n].target == "aten::detach") return;
    for_each_use(program.nodes[n], [&](ValueId value) { open.push_back(value); });
  };
  while (!open.empty()) {
    const ValueId value = open.back();
    open.pop_back();
    if (is_seen[value]) continue;
    is_seen[value] = true;
    if (static_cast<std::size_t>(value) < program.inputs.size()) inputs.push_back(value);
    take(maker[value]);
    for (const int writer : aliases.writers[aliases.group[value]]) take(writer);
  }
  return inputs;
}

}  // namespace sluice::graph
