#include "graph/sections.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "core/check.h"
#include "core/concat.h"
#include "graph/cutter.h"
#include "graph/node_arguments.h"

namespace sluice::graph {
namespace {

// Weights of norms stay with what they normalise.
bool is_norm(const Node& node) {
  return is_one_of(node, {"aten::batch_norm", "aten::group_norm", "aten::instance_norm", "aten::layer_norm",
                          "aten::rms_norm", "aten::native_layer_norm"}) ||
         node.module_class.find("Norm") != std::string::npos;
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

// Finds where to cut, and cuts there.
class CutFinder {
 public:
  explicit CutFinder(const Program& program) : program_(program), cutter_(program), counts_(cutter_.passing_counts()) {
    std::vector<bool> is_parameter(program.values.size(), false);
    for (const Input& input : program.inputs) is_parameter[input.value] = input.kind == InputKind::kParameter;
    for (int n = 0; n < cutter_.nodes(); ++n) {
      bool has_weights = false;
      std::size_t sum = used_.empty() ? 0 : used_.back();
      for_each_use(program.nodes[n], [&](ValueId value) {
        if (!is_parameter[value]) return;
        has_weights = true;
        sum += std::hash<std::string>()(program.inputs[value].name);
      });
      if (!has_weights || is_assertion(program.nodes[n])) continue;
      weights_.push_back(n);
      used_.push_back(sum);
    }
  }

  // How many nodes with weights here use what the first `count` of the other program use, in any order; -1: no such
  // number, or no cut is possible there.
  [[nodiscard]] int same_as(const CutFinder& other, int count) const {
    const auto found = std::ranges::find(used_, other.used_[static_cast<std::size_t>(count) - 1]);
    const auto own = static_cast<int>(found - used_.begin()) + 1;
    return found != used_.end() && cut_node(own) >= 0 ? own : -1;
  }

  // The node before which the narrowest cut between two nodes with weights is: the one with this number and the one
  // before. -1: there is no such cut.
  [[nodiscard]] int cut_node(int weight) const {
    if (weight < 1 || weight >= static_cast<int>(weights_.size())) return -1;
    const int node = narrowest(weights_[weight - 1] + 1, weights_[weight]);
    return counts_[node] > 0 ? node : -1;
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
        if (passing == 1 || end - begin > long_part) add_cuts(begin, end, passing, more);
        begin = end;
      }
      cuts.insert(cuts.end(), more.begin(), more.end());
      std::ranges::sort(cuts);
    }
    return thinned(without_norms_alone(cuts));
  }

  // cuts: of find(), or of same_as().
  [[nodiscard]] std::vector<Section> cut(const std::vector<int>& cuts) const {
    std::vector<int> before;
    for (const int cut : cuts) {
      before.push_back(cut_node(cut));
      check(before.back() >= 0, "a cut that find() found");
    }
    std::vector<Section> sections = cutter_.cut(before);
    std::map<std::string, int> uses;
    for (std::size_t s = 0; s < sections.size(); ++s) {
      const std::string name = name_of(s == 0 ? 0 : before[s - 1], s < before.size() ? before[s] : cutter_.nodes());
      const int use = ++uses[name];
      sections[s].name = use == 1 ? name : concat(name, "#", use);
    }
    return sections;
  }

 private:
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

  void add_cuts(int begin, int end, int passing, std::vector<int>& cuts) const {
    for (int weight = begin + 1; weight < end; ++weight) {
      if (const int node = cut_node(weight); node >= 0 && counts_[node] == passing) cuts.push_back(weight);
    }
  }

  // The last node from `first` to `last` before which the fewest values pass.
  [[nodiscard]] int narrowest(int first, int last) const {
    int best = last;
    for (int n = last; n >= first; --n) {
      if (counts_[n] > 0 && (counts_[best] <= 0 || counts_[n] < counts_[best])) best = n;
    }
    while (best > first && counts_[best - 1] == counts_[best] && is_counting(program_.nodes[best - 1])) --best;
    return best;
  }

  // A norm that counts its batches does so before it runs; both belong together.
  [[nodiscard]] bool is_counting(const Node& node) const {
    const ValueId count = node.target == "aten::add_" ? NodeArguments(node).value("self") : kNoValue;
    return count != kNoValue && static_cast<std::size_t>(count) < program_.inputs.size() &&
           program_.inputs[count].kind == InputKind::kBuffer;
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
  const Cutter cutter_;
  std::vector<int> counts_;        // Cutter::passing_counts()
  std::vector<int> weights_;       // nodes that take parameters
  std::vector<std::size_t> used_;  // [i]: hash of what the first i + 1 of them use
};

struct Cuts {
  std::vector<int> training, evaluation;
};

Cuts find_common_cuts(const CutFinder& training, const CutFinder& evaluation) {
  Cuts cuts;
  for (const int cut : training.find()) {
    const int other = evaluation.same_as(training, cut);
    if (other < 0 || (!cuts.evaluation.empty() && other <= cuts.evaluation.back())) continue;
    cuts.training.push_back(cut);
    cuts.evaluation.push_back(other);
  }
  return cuts;
}

bool are_alike(const Value& a, const Value& b) {
  const auto is_alike = [](const Extent& x, const Extent& y) {
    return x.formula.empty() == y.formula.empty() && (x.size == y.size || !x.formula.empty());
  };
  return a.kind == b.kind && a.type == b.type && std::ranges::equal(a.sizes, b.sizes, is_alike);
}

// [value]: how it is computed, from the names of states and inputs; without what differs between training and
// evaluation, such as dropout and numbers.
std::vector<std::size_t> origins_of(const Program& program) {
  std::vector<std::size_t> origins(program.values.size(), 0);
  for (const Input& input : program.inputs) origins[input.value] = std::hash<std::string>()(input.name);
  constexpr std::size_t kFactor = 1'000'003;
  for (const Node& node : program.nodes) {
    std::size_t origin = std::hash<std::string>()(node.target);
    for_each_use(node, [&](ValueId value) { origin = origin * kFactor + origins[value]; });
    const bool is_dropout = node.target.find("dropout") != std::string::npos;
    if (is_dropout) for_each_use(node, [&](ValueId value) { origin = origins[value]; });
    std::size_t number = 0;
    for (const ValueId output : node.outputs) {
      if (output != kNoValue) origins[output] = is_dropout ? origin : origin + number;
      ++number;
    }
  }
  return origins;
}

// Finds cuts at which sections of one program cannot follow those of the other.
class Borders {
 public:
  Borders(const Program& training, const Program& evaluation)
      : training_(training),
        evaluation_(evaluation),
        origins_(origins_of(training)),
        other_origins_(origins_of(evaluation)) {}

  // c: a cut, before section c + 1. If several values pass, these are told apart by their origins.
  [[nodiscard]] bool agree_at(std::size_t c, const CommonSections& all) const {
    const std::vector<ValueId>&mine = all.training[c + 1].inputs, &theirs = all.evaluation[c + 1].inputs;
    const auto made = std::ranges::count_if(mine, [&](ValueId value) { return !is_user_input(training_, value); });
    return std::ranges::equal(mine, theirs, [&](ValueId a, ValueId b) {
      return are_alike(training_.values[a], evaluation_.values[b]) && (made < 2 || origins_[a] == other_origins_[b]);
    });
  }

  // Cuts between a section of training that writes to a state and one of evaluation that reads it.
  [[nodiscard]] std::set<std::size_t> between_write_and_read(const CommonSections& all) const {
    std::set<std::size_t> cuts;
    for (std::size_t writer = 0; writer < all.training.size(); ++writer) {
      for (const std::string& state : written_states(all.training[writer])) {
        for (std::size_t reader = 0; reader < all.evaluation.size(); ++reader) {
          if (!reads(all.evaluation[reader], state)) continue;
          for (std::size_t c = std::min(writer, reader); c < std::max(writer, reader); ++c) cuts.insert(c);
        }
      }
    }
    return cuts;
  }

 private:
  [[nodiscard]] std::vector<std::string> written_states(const Section& section) const {
    std::vector<std::string> names;
    for (const int state : section.states) {
      if (std::ranges::binary_search(section.written, training_.inputs[state].value))
        names.push_back(training_.inputs[state].name);
    }
    return names;
  }
  [[nodiscard]] bool reads(const Section& section, const std::string& state) const {
    return std::ranges::any_of(section.states, [&](int one) { return evaluation_.inputs[one].name == state; });
  }

  const Program &training_, &evaluation_;
  const std::vector<std::size_t> origins_, other_origins_;
};

}  // namespace

CommonSections cut_both(const Program& training, const Program& evaluation) {
  const Borders borders(training, evaluation);
  const CutFinder own(training), others(evaluation);
  Cuts cuts = find_common_cuts(own, others);
  while (true) {
    CommonSections all{own.cut(cuts.training), others.cut(cuts.evaluation)};
    const std::set<std::size_t> apart = borders.between_write_and_read(all);
    Cuts kept;
    for (std::size_t c = 0; c < cuts.training.size(); ++c) {
      if (apart.contains(c) || !borders.agree_at(c, all)) continue;
      kept.training.push_back(cuts.training[c]);
      kept.evaluation.push_back(cuts.evaluation[c]);
    }
    if (kept.training.size() == cuts.training.size()) return all;
    cuts = kept;
  }
}

}  // namespace sluice::graph
