// push: what a worker sends to its server after a step, and the record of it afterwards. Values.
#pragma once

#include <cstdint>
#include <vector>

#include "ps/layout.h"
#include "ps/policy/push_record.h"

namespace sluice::ps {

// Scores of a step, for the records only.
struct PushScores {
  double loss_sum = 0;       // over the targets
  std::vector<double> sums;  // ScoreSums::sums; empty: not counted

  friend bool operator==(const PushScores&, const PushScores&) = default;
};

struct PushTimes {
  double compute_s = 0;  // includes the stall
  double stall_s = 0;
  double send_s = 0;  // between worker and server
  double idle_s = 0;  // from the arrival of its previous push until this step began

  friend bool operator==(const PushTimes&, const PushTimes&) = default;
};

struct ShardSpan {
  std::int64_t offset = 0;
  std::int64_t elements = 0;

  friend bool operator==(const ShardSpan&, const ShardSpan&) = default;
};

struct Push {
  PushRecord record;
  PushScores scores;
  PushTimes times;
  Tensors tensors;  // without shards if these were sent ahead (ServerLink::push_ahead)
};

struct PushDone {
  PushRecord record;
  PushScores scores;
  PushTimes times;
  std::int64_t staleness = 0;
  std::int64_t bytes = 0;  // sent bytes of the weights and the push; 0: not counted
};

}  // namespace sluice::ps
