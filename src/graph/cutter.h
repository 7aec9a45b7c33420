// cutter: cuts a program before given nodes (sections.h).
#pragma once

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "graph/aliases.h"
#include "graph/sections.h"

namespace sluice::graph {

class Cutter {
 public:
  explicit Cutter(const Program& program);

  [[nodiscard]] int nodes() const { return static_cast<int>(program_.nodes.size()); }
  // [node]: how many values pass a cut before it; -1: no cut is possible there.
  [[nodiscard]] std::vector<int> passing_counts() const;
  [[nodiscard]] std::vector<Section> cut(const std::vector<int>& before) const;
  // What computes a value from inputs of the model and constants. ConfigError if it depends on another state.
  [[nodiscard]] Section section_for(ValueId wanted) const;

 private:
  // A parameter, buffer or constant.
  [[nodiscard]] bool is_state(ValueId value) const;
  // True if a node computes the value and it is sent to later sections.
  [[nodiscard]] bool passes(std::size_t value) const;
  // Nodes [first, last] that no cut may separate: a memory that is written to between them must stay one.
  [[nodiscard]] std::vector<std::pair<int, int>> undivided() const;
  // The nodes from `begin` to `end`, after those before `begin` that make what they take, or `open`, of values that are
  // not sent.
  [[nodiscard]] std::vector<int> with_makers(int begin, int end, std::vector<ValueId> open) const;
  [[nodiscard]] std::vector<ValueId> written_in(const std::vector<int>& nodes) const;
  [[nodiscard]] std::set<ValueId> used_by(const std::vector<int>& nodes, const std::vector<ValueId>& outputs) const;
  [[nodiscard]] std::vector<ValueId> user_inputs() const;
  [[nodiscard]] std::vector<ValueId> border(int at, const std::set<ValueId>& inputs) const;

  const Program& program_;
  const Aliases aliases_;
  const std::vector<bool> sent_;
  const std::vector<int> maker_;
  std::vector<int> last_use_;
  std::map<int, std::vector<ValueId>> written_;  // values by the groups that are written to
};

}  // namespace sluice::graph
