#include "graph/cutter.h"

#include <algorithm>
#include <climits>
#include <utility>

#include "core/error.h"
#include "core/text.h"

namespace sluice::graph {
namespace {

constexpr int kBefore = -1;  // as a node: before all, of inputs

// Finds the values that are sent to later sections, not computed again.
class SentValues {
 public:
  SentValues(const Program& program, const Aliases& aliases)
      : program_(program), aliases_(aliases), sent_(program.values.size()), group_sent_(program.values.size()) {
    for (const Input& input : program.inputs) {
      const bool is_written = input.kind != InputKind::kUser && !aliases_.writers[aliases_.group[input.value]].empty();
      sent_[input.value] = input.kind == InputKind::kParameter || is_written;
    }
  }

  std::vector<bool> find() {
    while (mark()) {  // a write makes earlier views depend too
    }
    for (ValueId value = 0; value < static_cast<ValueId>(sent_.size()); ++value) sent_[value] = is_sent(value);
    return std::move(sent_);
  }

 private:
  [[nodiscard]] bool is_sent(ValueId value) const { return sent_[value] || group_sent_[aliases_.group[value]]; }
  [[nodiscard]] bool depends(const Node& node) const {
    bool any = false;
    for_each_use(node, [&](ValueId value) { any = any || is_sent(value); });
    return any;
  }
  // True if a memory is sent that was not before.
  bool mark() {
    bool is_new = false;
    for (const Node& node : program_.nodes) {
      if (!depends(node)) continue;
      for (const ValueId value : node.outputs) {
        if (value != kNoValue) sent_[value] = true;
      }
      for (const ValueId value : written_by(node)) {
        is_new = is_new || !group_sent_[aliases_.group[value]];
        group_sent_[aliases_.group[value]] = true;
      }
    }
    return is_new;
  }

  const Program& program_;
  const Aliases& aliases_;
  std::vector<bool> sent_;        // [value]
  std::vector<bool> group_sent_;  // [group]: something that is sent was written to it
};

}  // namespace

Cutter::Cutter(const Program& program)
    : program_(program),
      aliases_(find_aliases(program)),
      sent_(SentValues(program, aliases_).find()),
      maker_(makers_in(program)),
      last_use_(program.values.size(), kBefore) {
  for (int n = 0; n < nodes(); ++n) for_each_use(program.nodes[n], [&](ValueId value) { last_use_[value] = n; });
  for (const ValueId value : program.outputs) last_use_[value] = nodes();
  for (ValueId value = 0; value < static_cast<ValueId>(maker_.size()); ++value) {
    if (!aliases_.writers[aliases_.group[value]].empty()) written_[aliases_.group[value]].push_back(value);
  }
}

std::vector<int> Cutter::passing_counts() const {
  std::vector<int> counts(nodes() + 1, 0);
  std::vector<std::pair<int, int>> closed = undivided();
  for (std::size_t value = 0; value < maker_.size(); ++value) {
    if (!passes(value) || last_use_[value] <= maker_[value]) continue;
    ++counts[maker_[value] + 1];
    --counts[std::min(last_use_[value] + 1, nodes())];
    // Stages send the gradients of real numbers only.
    if (is_complex(program_.values[value])) closed.emplace_back(maker_[value], last_use_[value]);
  }
  for (int n = 1; n < nodes(); ++n) counts[n] += counts[n - 1];
  counts.pop_back();
  for (const auto& [first, last] : closed) {
    for (int n = first + 1; n <= std::min(last, nodes() - 1); ++n) counts[n] = -1;
  }
  return counts;
}

std::vector<Section> Cutter::cut(const std::vector<int>& before) const {
  std::vector<int> begins{0};
  begins.insert(begins.end(), before.begin(), before.end());
  std::vector<Section> sections(begins.size());
  std::vector<ValueId> next = program_.outputs;
  std::set<ValueId> inputs;  // of the model, taken in this section or later
  for (std::size_t s = sections.size(); s-- > 0;) {
    const int end = s + 1 < begins.size() ? begins[s + 1] : nodes();
    Section& section = sections[s];
    section.is_last = s + 1 == sections.size();
    const std::vector<ValueId> outputs = section.is_last ? program_.outputs : std::vector<ValueId>();
    section.nodes = with_makers(begins[s], end, outputs);
    section.written = written_in(section.nodes);
    for (const ValueId value : used_by(section.nodes, outputs)) {
      if (is_user_input(program_, value)) inputs.insert(value);
      if (is_state(value)) section.states.push_back(value);
    }
    section.outputs = std::exchange(next, s == 0 ? user_inputs() : border(begins[s], inputs));
    section.inputs = next;
  }
  return sections;
}

Section Cutter::section_for(ValueId wanted) const {
  Section section{.name = program_.values[wanted].name, .outputs = {wanted}, .is_last = true};
  section.nodes = with_makers(nodes(), nodes(), section.outputs);
  section.written = written_in(section.nodes);
  for (const ValueId value : used_by(section.nodes, section.outputs)) {
    if (sent_[value] || (is_state(value) && program_.inputs[value].kind != InputKind::kConstant))
      throw ConfigError("the second output of the model, the count of its targets, depends on ",
                        printable(is_state(value) ? program_.inputs[value].name : program_.values[value].name),
                        "; let it depend on the inputs alone");
    if (is_user_input(program_, value)) section.inputs.push_back(value);
    if (is_state(value)) section.states.push_back(value);
  }
  return section;
}

bool Cutter::is_state(ValueId value) const {
  return static_cast<std::size_t>(value) < program_.inputs.size() && !is_user_input(program_, value);
}
bool Cutter::passes(std::size_t value) const { return sent_[value] && maker_[value] != kBefore; }

std::vector<std::pair<int, int>> Cutter::undivided() const {
  struct Group {
    int first = INT_MAX, last = kBefore;  // nodes: that makes the first value or view, or writes; and of the last use
    bool has_input = false, is_sent = false;
  };
  std::map<int, Group> groups;
  for (std::size_t value = 0; value < maker_.size(); ++value) {
    if (aliases_.writers[aliases_.group[value]].empty()) continue;
    Group& group = groups[aliases_.group[value]];
    if (maker_[value] != kBefore) group.first = std::min(group.first, maker_[value]);
    group.last = std::max(group.last, last_use_[value]);
    group.has_input = group.has_input || value < program_.inputs.size();
    group.is_sent = group.is_sent || sent_[value];
  }
  std::vector<std::pair<int, int>> spans;
  for (const auto& [number, group] : groups) {
    if (!group.is_sent) continue;  // made again as a whole
    const std::vector<int>& writers = aliases_.writers[number];
    // Later sections have the input as it was.
    spans.emplace_back(std::min(group.first, writers.front()), group.has_input ? group.last : writers.back());
  }
  return spans;
}

std::vector<int> Cutter::with_makers(int begin, int end, std::vector<ValueId> open) const {
  std::set<int> again;
  for (int n = begin; n < end; ++n) for_each_use(program_.nodes[n], [&](ValueId value) { open.push_back(value); });
  const auto add = [&](int n) {
    if (n == kBefore || n >= begin || !again.insert(n).second) return;
    for_each_use(program_.nodes[n], [&](ValueId value) { open.push_back(value); });
  };
  while (!open.empty()) {
    const ValueId value = open.back();
    open.pop_back();
    if (sent_[value] || is_state(value)) continue;
    add(maker_[value]);
    for (const int writer : aliases_.writers[aliases_.group[value]]) add(writer);
  }
  std::vector<int> all(again.begin(), again.end());
  for (int n = begin; n < end; ++n) all.push_back(n);
  return all;
}

std::vector<ValueId> Cutter::written_in(const std::vector<int>& nodes) const {
  std::set<ValueId> values;
  for (const int n : nodes) {
    for (const ValueId value : written_by(program_.nodes[n])) {
      const auto members = written_.find(aliases_.group[value]);
      if (members != written_.end()) values.insert(members->second.begin(), members->second.end());
    }
  }
  return {values.begin(), values.end()};
}

std::set<ValueId> Cutter::used_by(const std::vector<int>& nodes, const std::vector<ValueId>& outputs) const {
  std::set<ValueId> values(outputs.begin(), outputs.end());
  for (const int n : nodes) for_each_use(program_.nodes[n], [&](ValueId value) { values.insert(value); });
  return values;
}

std::vector<ValueId> Cutter::user_inputs() const {
  std::vector<ValueId> values;
  for (const Input& input : program_.inputs) {
    if (input.kind == InputKind::kUser) values.push_back(input.value);
  }
  return values;
}

std::vector<ValueId> Cutter::border(int at, const std::set<ValueId>& inputs) const {
  std::vector<ValueId> values;
  for (std::size_t value = 0; value < maker_.size(); ++value) {
    if (passes(value) && maker_[value] < at && last_use_[value] >= at) values.push_back(static_cast<ValueId>(value));
  }
  values.insert(values.end(), inputs.begin(), inputs.end());
  return values;
}

}  // namespace sluice::graph
