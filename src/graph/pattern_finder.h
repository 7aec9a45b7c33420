// pattern_finder: what patterns ask of a section, and the list of those that were found. Each kind of pattern is a
// function that looks at one node and what surrounds it, and adds what it finds.
#pragma once

#include <set>
#include <string_view>
#include <vector>

#include "graph/aliases.h"
#include "graph/node_arguments.h"
#include "graph/patterns.h"

namespace sluice::graph {

class PatternFinder {
 public:
  PatternFinder(const Program& program, const Aliases& aliases, const Section& section, const PatternOptions& options);

  [[nodiscard]] const Program& program() const { return program_; }
  [[nodiscard]] const Section& section() const { return section_; }
  [[nodiscard]] const PatternOptions& options() const { return options_; }

  [[nodiscard]] const Node& node(int n) const { return program_.nodes[n]; }
  [[nodiscard]] NodeArguments arguments(int n) const { return NodeArguments(node(n)); }
  [[nodiscard]] ValueId output(int n) const { return node(n).outputs.front(); }
  // By another pattern, or because layers of ours would compute it in bfloat16.
  [[nodiscard]] bool is_taken(int n) const {
    return taken_.contains(n) || (options_.activations == at::kBFloat16 && node(n).without_autocast);
  }

  // -1 stands for no node, in arguments too.
  // The node of the section that makes the value, if it calls one of the targets.
  [[nodiscard]] int maker(ValueId value) const { return value == kNoValue ? -1 : maker_[value]; }
  [[nodiscard]] int maker(ValueId value, std::initializer_list<std::string_view> targets) const;
  // The only node that takes the value, if no later section does.
  [[nodiscard]] int sole_user(ValueId value) const;
  [[nodiscard]] int sole_user(ValueId value, std::initializer_list<std::string_view> targets) const;
  // The maker, if the value has no other user than `user`.
  [[nodiscard]] int maker_for(int user, ValueId value, std::initializer_list<std::string_view> targets) const;

  // The factor beside `factor` in a product; kNoValue: it has no such factor.
  [[nodiscard]] ValueId other_factor(int product, ValueId factor) const;

  // Null if the value is another one.
  [[nodiscard]] const Input* input(ValueId value) const;
  [[nodiscard]] const Input* parameter(ValueId value) const;
  [[nodiscard]] std::size_t dims(ValueId value) const { return sizes(value).size(); }
  [[nodiscard]] const std::vector<Extent>& sizes(ValueId value) const { return program_.values[value].sizes; }
  [[nodiscard]] const std::vector<int>& writers(ValueId value) const { return aliases_.writers[aliases_.group[value]]; }
  // Parameters that a layer trains, both or neither. bias may be kNoValue.
  [[nodiscard]] bool are_weights(ValueId weight, ValueId bias) const;
  [[nodiscard]] bool is_trained(ValueId parameter_value) const {
    return options_.is_trained(*parameter(parameter_value));
  }

  // False if a node between its first and last writes to what it takes, or one after it to what it gives.
  [[nodiscard]] bool can_run(const Pattern& pattern) const;
  // Adds it if it can run.
  bool add(Pattern pattern);

  [[nodiscard]] std::vector<Pattern> found() &&;

 private:
  const Program& program_;
  const Section& section_;
  const PatternOptions& options_;
  const Aliases& aliases_;
  std::vector<int> maker_;               // [value]
  std::vector<std::vector<int>> users_;  // [value]: nodes of the section, ascending
  std::set<ValueId> kept_;               // for later sections
  std::set<int> taken_;                  // nodes of patterns
  std::vector<Pattern> found_;
};

// Each returns true if it has added a pattern that begins at the node.
bool match_linear(PatternFinder& finder, int n);
bool match_swiglu(PatternFinder& finder, int n);
bool match_convolution(PatternFinder& finder, int n);
bool match_gelu(PatternFinder& finder, int n);
bool match_batch_norm(PatternFinder& finder, int n);
bool match_rms_norm(PatternFinder& finder, int n);
bool match_attention(PatternFinder& finder, int n);
bool match_rotary(PatternFinder& finder, int n);

}  // namespace sluice::graph
