#include "graph/pattern_finder.h"

#include <algorithm>
#include <utility>

namespace sluice::graph {

PatternFinder::PatternFinder(const Program& program, const Aliases& aliases, const Section& section,
                             const PatternOptions& options)
    : program_(program),
      section_(section),
      options_(options),
      aliases_(aliases),
      maker_(program.values.size(), -1),
      users_(program.values.size()),
      kept_(section.outputs.begin(), section.outputs.end()) {
  for (const int n : section.nodes) {
    for (const ValueId value : program.nodes[n].outputs) {
      if (value != kNoValue) maker_[value] = n;
    }
    if (is_assertion(program.nodes[n])) continue;
    for_each_use(program.nodes[n], [&](ValueId value) {
      if (users_[value].empty() || users_[value].back() != n) users_[value].push_back(n);
    });
  }
}

int PatternFinder::maker(ValueId value, std::initializer_list<std::string_view> targets) const {
  const int n = maker(value);
  return n >= 0 && !is_taken(n) && is_one_of(node(n), targets) ? n : -1;
}

int PatternFinder::sole_user(ValueId value) const {
  const bool is_alone = users_[value].size() == 1 && !kept_.contains(value) && !is_taken(users_[value].front());
  return is_alone ? users_[value].front() : -1;
}

int PatternFinder::sole_user(ValueId value, std::initializer_list<std::string_view> targets) const {
  const int n = sole_user(value);
  return n >= 0 && is_one_of(node(n), targets) ? n : -1;
}

int PatternFinder::maker_for(int user, ValueId value, std::initializer_list<std::string_view> targets) const {
  const int n = maker(value, targets);
  return n >= 0 && sole_user(value) == user ? n : -1;
}

ValueId PatternFinder::other_factor(int product, ValueId factor) const {
  const ValueId self = arguments(product).value("self"), other = arguments(product).value("other");
  if (self == other) return kNoValue;
  return self == factor ? other : other == factor ? self : kNoValue;
}

const Input* PatternFinder::input(ValueId value) const {
  const bool is_input = value != kNoValue && static_cast<std::size_t>(value) < program_.inputs.size();
  return is_input ? &program_.inputs[value] : nullptr;
}

const Input* PatternFinder::parameter(ValueId value) const {
  const Input* const found = input(value);
  return found != nullptr && found->kind == InputKind::kParameter ? found : nullptr;
}

bool PatternFinder::are_weights(ValueId weight, ValueId bias) const {
  if (parameter(weight) == nullptr || !writers(weight).empty()) return false;
  if (bias == kNoValue) return true;
  return parameter(bias) != nullptr && writers(bias).empty() && is_trained(bias) == is_trained(weight);
}

bool PatternFinder::can_run(const Pattern& pattern) const {
  const auto [first, last] = std::ranges::minmax(pattern.nodes);
  const auto is_own = [&](int n) { return std::ranges::find(pattern.nodes, n) != pattern.nodes.end(); };
  // Autograd refuses operators in place on views that a layer of ours returns.
  if (!pattern.may_be_written && !std::ranges::all_of(writers(output(last)), is_own)) return false;
  for (const ValueId value : pattern.inputs) {
    if (value == kNoValue) continue;
    for (const int writer : writers(value)) {
      if (writer > first && writer < last && !is_own(writer)) return false;
    }
  }
  return std::ranges::none_of(pattern.nodes, [&](int n) { return is_taken(n); });
}

bool PatternFinder::add(Pattern pattern) {
  if (!can_run(pattern)) return false;
  std::ranges::sort(pattern.nodes);
  pattern.output = output(pattern.nodes.back());
  taken_.insert(pattern.nodes.begin(), pattern.nodes.end());
  found_.push_back(std::move(pattern));
  return true;
}

std::vector<Pattern> PatternFinder::found() && {
  std::ranges::sort(found_, {}, [](const Pattern& pattern) { return pattern.nodes.back(); });
  return std::move(found_);
}

}  // namespace sluice::graph
