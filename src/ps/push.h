// push: what a worker sends to its server after a step, and what is told of it afterwards. Values.
#pragma once

#include <cstdint>

#include "ps/layout.h"
#include "ps/policy/push_record.h"

namespace sluice::ps {

// How well a step did, for the records; nothing is decided by it.
struct PushScores {
  double loss_sum = 0;    // over the targets
  std::int64_t top1 = 0;  // targets predicted right, and among the five likeliest; 0 where nobody counts them
  std::int64_t top5 = 0;

  friend bool operator==(const PushScores&, const PushScores&) = default;
};

// Where the time of a step went, all in seconds and of the step that made the push.
struct PushTimes {
  double compute_s = 0;  // stall included
  double stall_s = 0;
  double send_s = 0;  // between worker and server
  double idle_s = 0;  // from the arrival of its last push until this step began

  friend bool operator==(const PushTimes&, const PushTimes&) = default;
};

// Elements of a shard.
struct ShardSpan {
  std::int64_t offset = 0;
  std::int64_t elements = 0;

  friend bool operator==(const ShardSpan&, const ShardSpan&) = default;
};

struct Push {
  PushRecord record;
  PushScores scores;
  PushTimes times;
  Tensors tensors;  // no shards where these have gone ahead (ServerLink::push_ahead)
};

// A push that has become part of an update.
struct PushDone {
  PushRecord record;
  PushScores scores;
  PushTimes times;
  std::int64_t staleness = 0;  // staleness_of()
  std::int64_t bytes = 0;      // of the weights and the push, as they have travelled; 0: nobody has counted them
};

}  // namespace sluice::ps
