// addition_sequence: the fixed sequence in which R replicas' shares are added up: the sum always has the same bits.
//   in turn   ((0 + 1) + 2) + 3: R - 1 additions, one after the other, all into replica 0's memory
//   in pairs  (0 + 1) + (2 + 3), then pairs of pairs: R - 1 additions in ceil(log2 R) rounds
//   in a tree (core/sum_tree.h) whose leaves are all micro-batches of the step: the sum does not depend on R
// The additions of one round run in parallel, each on the two devices of its replicas. A device's link carries at most
// one share per round. A share that another one is added to is overwritten. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/sum_tree.h"

namespace sluice::ddp {

struct Summand {
  int replica = 0;
  int node = 0;  // among those of the replica; 0 if replicas have one sum each
  bool operator==(const Summand&) const = default;
};

struct Addition {
  Summand into;
  Summand from;
  bool operator==(const Addition&) const = default;
};

[[nodiscard]] std::vector<Addition> add_in_turn(int replicas);
[[nodiscard]] std::vector<Addition> add_in_pairs(int replicas);

struct TreeAdditions {
  std::vector<Addition> additions;
  std::vector<Summand> sums;  // where the sums of nodes_within() all ranges are, in the order of the nodes
};
// ranges: [replica], consecutive micro-batches, of `all` in the step.
[[nodiscard]] TreeAdditions add_in_tree(std::span<const NumberRange> ranges, std::int64_t all);

// The way back: replica 0's weights are copied to all. Each round doubles the number of copies.
struct Handover {
  int from;
  int to;
  bool operator==(const Handover&) const = default;
};
[[nodiscard]] std::vector<std::vector<Handover>> spread_in_pairs(int replicas);  // [round]

}  // namespace sluice::ddp
