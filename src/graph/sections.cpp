#include "graph/sections.h"

#include <algorithm>
#include <array>
#include <climits>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "core/concat.h"
#include "core/error.h"
#include "graph/aliases.h"

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

class Cutter {
 public:
  explicit Cutter(const Program& program)
      : program_(program),
        aliases_(find_aliases(program)),
        sent_(SentValues(program, aliases_).find()),
        maker_(program.values.size(), kBefore),
        last_use_(program.values.size(), kBefore),
        input_(program.values.size(), kBefore) {
    for (int i = 0; i < static_cast<int>(program.inputs.size()); ++i) input_[program.inputs[i].value] = i;
    for (int n = 0; n < nodes(); ++n) {
      for_each_use(program.nodes[n], [&](ValueId value) { last_use_[value] = n; });
      for (const ValueId value : program.nodes[n].outputs) {
        if (value != kNoValue) maker_[value] = n;
      }
    }
    for (const ValueId value : program.outputs) last_use_[value] = nodes();
    for (ValueId value = 0; value < static_cast<ValueId>(maker_.size()); ++value) {
      if (!aliases_.writers[aliases_.group[value]].empty()) written_[aliases_.group[value]].push_back(value);
    }
  }

  [[nodiscard]] int nodes() const { return static_cast<int>(program_.nodes.size()); }
  // [node]: how many values pass a cut before it; -1: no cut is possible there.
  [[nodiscard]] std::vector<int> passing_counts() const {
    std::vector<int> counts(nodes() + 1, 0);
    for (std::size_t value = 0; value < maker_.size(); ++value) {
      if (!passes(value) || last_use_[value] <= maker_[value]) continue;
      ++counts[maker_[value] + 1];
      --counts[std::min(last_use_[value] + 1, nodes())];
    }
    for (int n = 1; n < nodes(); ++n) counts[n] += counts[n - 1];
    counts.pop_back();
    for (const auto& [first, last] : undivided()) {
      for (int n = first + 1; n <= std::min(last, nodes() - 1); ++n) counts[n] = -1;
    }
    return counts;
  }

  [[nodiscard]] std::vector<Section> cut(const std::vector<int>& before) const {
    std::vector<int> begins{0};
    begins.insert(begins.end(), before.begin(), before.end());
    std::vector<Section> sections(begins.size());
    std::vector<ValueId> next = program_.outputs;
    std::set<ValueId> inputs;  // of the model, taken in this section or later
    for (std::size_t s = sections.size(); s-- > 0;) {
      const int end = s + 1 < begins.size() ? begins[s + 1] : nodes();
      Section& section = sections[s];
      section.is_last = s + 1 == sections.size();
      section.nodes = with_makers(begins[s], end, section.is_last);
      for (const int n : section.nodes)
        for_each_use(program_.nodes[n], [&](ValueId value) { add_input(value, inputs, section); });
      if (section.is_last)
        for (const ValueId value : program_.outputs) add_input(value, inputs, section);
      std::ranges::sort(section.states);
      section.states.erase(std::unique(section.states.begin(), section.states.end()), section.states.end());
      section.written = written_in(section.nodes);
      section.gives = std::exchange(next, s == 0 ? user_inputs() : border(begins[s], inputs));
      section.takes = next;
    }
    return sections;
  }

 private:
  // A parameter, buffer or constant.
  [[nodiscard]] bool is_state(std::size_t value) const {
    return input_[value] != kBefore && program_.inputs[input_[value]].kind != InputKind::kUser;
  }
  // Values of nodes; what depends on no parameter is made again.
  [[nodiscard]] bool passes(std::size_t value) const { return sent_[value] && maker_[value] != kBefore; }

  // Nodes [first, last] that no cut may separate: a memory that is written to between them must stay one.
  [[nodiscard]] std::vector<std::pair<int, int>> undivided() const {
    struct Group {
      int first = INT_MAX, last = kBefore;  // nodes: that makes the first value or view, or writes; and of the last use
      bool has_input = false, is_state = false, is_sent = false;
    };
    std::map<int, Group> groups;
    for (std::size_t value = 0; value < maker_.size(); ++value) {
      if (aliases_.writers[aliases_.group[value]].empty()) continue;
      Group& group = groups[aliases_.group[value]];
      if (maker_[value] != kBefore) group.first = std::min(group.first, maker_[value]);
      group.last = std::max(group.last, last_use_[value]);
      group.has_input = group.has_input || input_[value] != kBefore;
      group.is_state = group.is_state || is_state(value);
      group.is_sent = group.is_sent || sent_[value];
    }
    std::vector<std::pair<int, int>> spans;
    for (const auto& [number, group] : groups) {
      if (!group.is_state && !group.is_sent) continue;  // made again as a whole
      const std::vector<int>& writers = aliases_.writers[number];
      // Later sections have the input as it was.
      spans.emplace_back(std::min(group.first, writers.front()), group.has_input ? group.last : writers.back());
    }
    return spans;
  }

  // The nodes from `begin` to `end`, after the nodes before `begin` that make what they take of untrained values.
  [[nodiscard]] std::vector<int> with_makers(int begin, int end, bool is_last) const {
    std::set<int> again;
    std::vector<ValueId> open;
    for (int n = begin; n < end; ++n) for_each_use(program_.nodes[n], [&](ValueId value) { open.push_back(value); });
    if (is_last) open.insert(open.end(), program_.outputs.begin(), program_.outputs.end());
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

  [[nodiscard]] std::vector<ValueId> written_in(const std::vector<int>& nodes) const {
    std::set<ValueId> values;
    for (const int n : nodes) {
      for (const ValueId value : written_by(program_.nodes[n])) {
        const auto members = written_.find(aliases_.group[value]);
        if (members != written_.end()) values.insert(members->second.begin(), members->second.end());
      }
    }
    return {values.begin(), values.end()};
  }

  void add_input(ValueId value, std::set<ValueId>& inputs, Section& section) const {
    const int input = input_[value];
    if (input == kBefore) return;
    program_.inputs[input].kind == InputKind::kUser ? static_cast<void>(inputs.insert(value))
                                                    : section.states.push_back(input);
  }

  [[nodiscard]] std::vector<ValueId> user_inputs() const {
    std::vector<ValueId> values;
    for (const Input& input : program_.inputs) {
      if (input.kind == InputKind::kUser) values.push_back(input.value);
    }
    return values;
  }

  [[nodiscard]] std::vector<ValueId> border(int at, const std::set<ValueId>& inputs) const {
    std::vector<ValueId> values;
    for (std::size_t value = 0; value < maker_.size(); ++value) {
      if (passes(value) && maker_[value] < at && last_use_[value] >= at) values.push_back(static_cast<ValueId>(value));
    }
    values.insert(values.end(), inputs.begin(), inputs.end());
    return values;
  }

  const Program& program_;
  const Aliases aliases_;
  const std::vector<bool> sent_;
  std::vector<int> maker_, last_use_;
  std::vector<int> input_;  // [value]: position in Program::inputs; kBefore: a node makes the value
  std::map<int, std::vector<ValueId>> written_;  // values by the groups that are written to
};

// Weights of norms stay with what they normalise.
bool is_norm(const Node& node) {
  constexpr std::array<std::string_view, 6> kNorms{"aten::batch_norm", "aten::group_norm", "aten::instance_norm",
                                                   "aten::layer_norm", "aten::rms_norm",   "aten::native_layer_norm"};
  return std::ranges::find(kNorms, node.target) != kNorms.end() || node.module_class.find("Norm") != std::string::npos;
}

// "layer1.0" of "layer1.0.conv1" and "layer1.0.conv2".
std::string common_module(const std::string& a, const std::string& b) {
  std::size_t end = 0;
  for (std::size_t i = 0;; ++i) {
    const bool a_ends = i == a.size() || a[i] == '.', b_ends = i == b.size() || b[i] == '.';
    if (a_ends && b_ends) end = i;
    if (i >= a.size() || i >= b.size() || a[i] != b[i]) return a.substr(0, end);
  }
}

// Finds where to cut.
class Places {
 public:
  explicit Places(const Program& program, const Cutter& cutter) : program_(program), counts_(cutter.passing_counts()) {
    std::vector<bool> is_parameter(program.values.size(), false);
    for (const Input& input : program.inputs) is_parameter[input.value] = input.kind == InputKind::kParameter;
    for (int n = 0; n < cutter.nodes(); ++n) {
      bool has_weights = false;
      for_each_use(program.nodes[n], [&](ValueId value) { has_weights = has_weights || is_parameter[value]; });
      if (has_weights) weights_.push_back(n);
    }
  }

  // The node before which the narrowest cut between two nodes with weights is: the one with this number and the one
  // before. -1: there is no such cut.
  [[nodiscard]] int place_of(int weight) const {
    if (weight < 1 || weight >= static_cast<int>(weights_.size())) return -1;
    const int place = narrowest(weights_[weight - 1] + 1, weights_[weight]);
    return counts_[place] > 0 ? place : -1;
  }

  // Numbers of nodes with weights: cuts that one value passes. In long parts without such a cut, two pass, and so on.
  [[nodiscard]] std::vector<int> find() const {
    constexpr int kMostPassing = 8;
    const int count = static_cast<int>(weights_.size()), long_part = count / 3 + 1;
    std::vector<int> cuts;
    for (int passing = 1; passing <= kMostPassing; ++passing) {
      std::vector<int> more;
      int begin = 0;
      for (std::size_t part = 0; part <= cuts.size(); ++part) {
        const int end = part < cuts.size() ? cuts[part] : count;
        if (passing == 1 || end - begin > long_part) add_places(begin, end, passing, more);
        begin = end;
      }
      cuts.insert(cuts.end(), more.begin(), more.end());
      std::ranges::sort(cuts);
    }
    return thinned(without_norms_alone(cuts));
  }

  [[nodiscard]] std::string name_of(int begin, int end) const {
    std::string name, first;
    bool is_first = true;
    for (const int n : weights_) {
      if (n < begin || n >= end) continue;
      const std::string& module = program_.nodes[n].module;
      name = is_first ? module : common_module(name, module);
      if (is_first) first = module;
      is_first = false;
    }
    return !name.empty() ? name : !first.empty() ? first : "model";
  }

 private:
  void add_places(int begin, int end, int passing, std::vector<int>& cuts) const {
    for (int weight = begin + 1; weight < end; ++weight) {
      if (const int place = place_of(weight); place >= 0 && counts_[place] == passing) cuts.push_back(weight);
    }
  }

  // The last of the places from `first` to `last` where the fewest values pass.
  [[nodiscard]] int narrowest(int first, int last) const {
    int best = last;
    for (int n = last; n >= first; --n) {
      if (counts_[n] > 0 && (counts_[best] <= 0 || counts_[n] < counts_[best])) best = n;
    }
    return best;
  }

  // More layers than this are of no use to any pipeline.
  [[nodiscard]] static std::vector<int> thinned(const std::vector<int>& cuts) {
    constexpr std::size_t kMostCuts = 1000;
    if (cuts.size() <= kMostCuts) return cuts;
    std::vector<int> kept;
    for (std::size_t i = 0; i < kMostCuts; ++i) kept.push_back(cuts[i * cuts.size() / kMostCuts]);
    return kept;
  }

  [[nodiscard]] std::vector<int> without_norms_alone(const std::vector<int>& cuts) const {
    std::vector<int> kept;
    for (std::size_t c = 0; c < cuts.size(); ++c) {
      const auto begin = weights_.begin() + cuts[c];
      const auto end = c + 1 < cuts.size() ? weights_.begin() + cuts[c + 1] : weights_.end();
      if (!std::all_of(begin, end, [&](int n) { return is_norm(program_.nodes[n]); })) kept.push_back(cuts[c]);
    }
    return kept;
  }

  const Program& program_;
  std::vector<int> counts_;   // Cutter::passing_counts()
  std::vector<int> weights_;  // nodes that take parameters
};

}  // namespace

std::vector<int> possible_cuts(const Program& program, int step) {
  const std::vector<int> counts = Cutter(program).passing_counts();
  std::vector<int> cuts;
  int possible = 0;
  for (int n = 1; n < static_cast<int>(counts.size()); ++n) {
    if (counts[n] > 0 && ++possible % step == 0) cuts.push_back(n);
  }
  return cuts;
}

std::vector<Section> cut_at(const Program& program, const std::vector<int>& before) {
  std::vector<Section> sections = Cutter(program).cut(before);
  for (std::size_t s = 0; s < sections.size(); ++s) sections[s].name = concat("nodes", s);
  return sections;
}

Section section_for(const Program& program, ValueId value) {
  Section section{.name = program.values[value].name, .gives = {value}, .is_last = true};
  std::map<ValueId, int> makers;
  for (int n = 0; n < static_cast<int>(program.nodes.size()); ++n)
    for (const ValueId output : program.nodes[n].outputs) makers.emplace(output, n);
  std::set<int> nodes;
  std::set<ValueId> takes;
  std::vector<ValueId> open{value};
  while (!open.empty()) {
    const ValueId wanted = open.back();
    open.pop_back();
    if (is_user_input(program, wanted)) takes.insert(wanted);
    if (static_cast<std::size_t>(wanted) < program.inputs.size() && !is_user_input(program, wanted))
      throw ConfigError("the second output of the model, the count of its targets, depends on ",
                        printable(program.inputs[wanted].name), "; let it depend on the inputs alone");
    const auto maker = makers.find(wanted);
    if (maker == makers.end() || !nodes.insert(maker->second).second) continue;
    for_each_use(program.nodes[maker->second], [&](ValueId used) { open.push_back(used); });
  }
  section.nodes.assign(nodes.begin(), nodes.end());
  section.takes.assign(takes.begin(), takes.end());
  return section;
}

std::vector<int> find_cuts(const Program& program) { return Places(program, Cutter(program)).find(); }

std::vector<Section> cut_into_sections(const Program& program, const std::vector<int>& cuts) {
  const Cutter cutter(program);
  const Places places(program, cutter);
  std::vector<int> before;
  for (const int cut : cuts) {
    before.push_back(places.place_of(cut));
    if (before.back() < 0) {
      throw ConfigError(
          "the program of evaluation uses the weights in another order than that of training; export a model that "
          "calls "
          "the same modules in both");
    }
  }
  std::vector<Section> sections = cutter.cut(before);
  std::map<std::string, int> uses;
  for (std::size_t s = 0; s < sections.size(); ++s) {
    const std::string name = places.name_of(s == 0 ? 0 : before[s - 1], s < before.size() ? before[s] : cutter.nodes());
    const int use = ++uses[name];
    sections[s].name = use == 1 ? name : concat(name, "#", use);
  }
  return sections;
}

}  // namespace sluice::graph
