// node_arguments: the arguments of a node by name.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "core/concat.h"
#include "graph/program.h"

namespace sluice::graph {

class NodeArguments {
 public:
  explicit NodeArguments(const Node& node) : node_(node) {}

  [[nodiscard]] bool has(std::string_view name) const { return find(name) != nullptr; }
  // Nothing if there is no such argument of this type.
  template <typename T>
  [[nodiscard]] std::optional<T> get(std::string_view name) const {
    const Argument* const found = find(name);
    const T* const value = found == nullptr ? nullptr : std::get_if<T>(found);
    return value == nullptr ? std::nullopt : std::optional(*value);
  }
  [[nodiscard]] ValueId value(std::string_view name) const {
    const auto tensor = get<TensorArgument>(name);
    return tensor ? tensor->value : kNoValue;
  }
  // A fixed number, whole or not.
  [[nodiscard]] std::optional<double> number(std::string_view name) const {
    if (const auto real = get<double>(name)) return real;
    const auto whole = get<Number>(name);
    return whole && whole->value == kNoValue ? std::optional(static_cast<double>(whole->fixed)) : std::nullopt;
  }
  [[nodiscard]] bool is(std::string_view name, double number_wanted) const { return number(name) == number_wanted; }
  // The fixed number that all entries of a list are; missing: if there is no such argument.
  [[nodiscard]] std::optional<std::int64_t> common(std::string_view name, std::int64_t missing) const {
    if (!has(name)) return missing;
    const auto list = get<std::vector<Number>>(name);
    if (!list || list->empty()) return std::nullopt;
    const Number& first = list->front();
    const bool are_same = std::ranges::all_of(*list, [&](const Number& one) { return one == first; });
    return are_same && first.value == kNoValue ? std::optional(first.fixed) : std::nullopt;
  }

 private:
  [[nodiscard]] const Argument* find(std::string_view name) const {
    const auto found = std::ranges::find(node_.arguments, name, &NamedArgument::name);
    return found == node_.arguments.end() ? nullptr : &found->value;
  }

  const Node& node_;
};

[[nodiscard]] inline bool is_one_of(const Node& node, std::initializer_list<std::string_view> targets) {
  return std::ranges::find(targets, node.target) != targets.end();
}

// list: words with a space before and after each.
[[nodiscard]] inline bool is_listed(std::string_view word, std::string_view list) {
  return list.find(concat(" ", word, " ")) != std::string_view::npos;
}

}  // namespace sluice::graph
