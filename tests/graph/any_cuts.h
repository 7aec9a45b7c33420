// any_cuts: cuts programs before any nodes, for tests.
#pragma once

#include <string>
#include <vector>

#include "graph/cutter.h"

namespace sluice::graph {

// Every `step`-th node before which a cut is possible.
inline std::vector<int> possible_cuts(const Program& program, int step = 1) {
  const std::vector<int> counts = Cutter(program).passing_counts();
  std::vector<int> cuts;
  int possible = 0;
  for (int n = 1; n < static_cast<int>(counts.size()); ++n) {
    if (counts[n] > 0 && ++possible % step == 0) cuts.push_back(n);
  }
  return cuts;
}

// Cuts before these nodes, in ascending order.
inline std::vector<Section> cut_at(const Program& program, const std::vector<int>& before) {
  std::vector<Section> sections = Cutter(program).cut(before);
  for (std::size_t s = 0; s < sections.size(); ++s) sections[s].name = "nodes" + std::to_string(s);
  return sections;
}

}  // namespace sluice::graph
