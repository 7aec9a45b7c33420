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

 private:
  // A parameter, buffer or constant.
  [[nodiscard]] bool is_state(std::size_t value) const;
  // Values of nodes; what depends on no parameter is made again.
  [[nodiscard]] bool passes(std::size_t value) const;
  // Nodes [first, last] that no cut may separate: a memory that is written to between them must stay one.
  [[nodiscard]] std::vector<std::pair<int, int>> undivided() const;
  // The nodes from `begin` to `end`, after the nodes before `begin` that make what they take of untrained values.
  [[nodiscard]] std::vector<int> with_makers(int begin, int end, bool is_last) const;
  [[nodiscard]] std::vector<ValueId> written_in(const std::vector<int>& nodes) const;
  void add_input(ValueId value, std::set<ValueId>& inputs, Section& section) const;
  [[nodiscard]] std::vector<ValueId> user_inputs() const;
  [[nodiscard]] std::vector<ValueId> border(int at, const std::set<ValueId>& inputs) const;

  const Program& program_;
  const Aliases aliases_;
  const std::vector<bool> sent_;
  std::vector<int> maker_, last_use_;
  std::vector<int> input_;                       // [value]: position in Program::inputs; -1: a node makes the value
  std::map<int, std::vector<ValueId>> written_;  // values by the groups that are written to
};

}  // namespace sluice::graph
