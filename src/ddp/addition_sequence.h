// addition_sequence: in which order the shares of R replicas are added up. It does not depend on who is there first, so
// that the sum has the same bits each time.
//   in turn   ((0 + 1) + 2) + 3: R - 1 additions, one after the other, all into replica 0's memory
//   in pairs  (0 + 1) + (2 + 3), then pairs of pairs: as many additions, but those of a round side by side, each by the
//             two devices of its replicas: ceil(log2 R) rounds, and no device's links carry more than one share a round
// In pairs an element is rounded as often as there are rounds, in turn R - 1 times. Shares that others were added to
// are written over. Pure.
#pragma once

#include <vector>

namespace sluice::ddp {

// Adds replica `from`'s share to replica `into`'s.
struct Addition {
  int into;
  int from;
  bool operator==(const Addition&) const = default;
};

[[nodiscard]] std::vector<Addition> add_in_turn(int replicas);
[[nodiscard]] std::vector<Addition> add_in_pairs(int replicas);

// The way back: replica 0's weights to all. Each round doubles the number of those that have them.
struct Handover {
  int from;
  int to;
  bool operator==(const Handover&) const = default;
};
[[nodiscard]] std::vector<std::vector<Handover>> spread_in_pairs(int replicas);  // [round]

}  // namespace sluice::ddp
