// addition_sequence: the fixed sequence in which R replicas' shares are added up: the sum always has the same bits.
//   in turn   ((0 + 1) + 2) + 3: R - 1 additions, one after the other, all into replica 0's memory
//   in pairs  (0 + 1) + (2 + 3), then pairs of pairs: R - 1 additions in ceil(log2 R) rounds
// The additions of one round run in parallel, each on the two devices of its replicas. A device's link carries at most
// one share per round. A share that another one is added to is overwritten. Pure functions.
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

// The way back: replica 0's weights are copied to all. Each round doubles the number of copies.
struct Handover {
  int from;
  int to;
  bool operator==(const Handover&) const = default;
};
[[nodiscard]] std::vector<std::vector<Handover>> spread_in_pairs(int replicas);  // [round]

}  // namespace sluice::ddp
