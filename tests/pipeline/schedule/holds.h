// holds: what a device holds while it walks its list, counted from intervals. For the tests of inspect.h and memory.h,
// which keep running sums instead.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "pipeline/schedule/action.h"

namespace sluice::pipeline::test {

// Positions of what a device does for one (stage, micro-batch). A whole backward is both gradient and release.
struct Life {
  std::size_t forward = 0;
  std::size_t gradient = 0;  // B or I
  std::size_t release = 0;   // B or W
};

inline std::map<std::pair<StageId, MicroBatchId>, Life> lives_of(const std::vector<Action>& actions) {
  std::map<std::pair<StageId, MicroBatchId>, Life> lives;
  for (std::size_t i = 0; i < actions.size(); ++i) {
    if (actions[i].op == Op::kReduceGradient) continue;
    Life& life = lives[{actions[i].stage, actions[i].micro_batch}];
    if (actions[i].op == Op::kForward) life.forward = i;
    if (actions[i].op == Op::kBackward || actions[i].op == Op::kInputGradient) life.gradient = i;
    if (actions[i].op == Op::kBackward || actions[i].op == Op::kWeightGradient) life.release = i;
  }
  return lives;
}

struct Hold {
  std::size_t from = 0;
  std::size_t to = 0;  // still held
  std::int64_t amount = 1;
};

inline std::int64_t most_at_once(const std::vector<Hold>& holds) {
  std::map<std::size_t, std::int64_t> changes;
  for (const Hold& hold : holds) {
    changes[hold.from] += hold.amount;
    changes[hold.to + 1] -= hold.amount;
  }
  std::int64_t now = 0;
  std::int64_t most = 0;
  for (const auto& [position, change] : changes) most = std::max(most, now += change);
  return most;
}

}  // namespace sluice::pipeline::test
