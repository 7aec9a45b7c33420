// mix: the numbers by which pushes are merged into one update. A server computes
//   (keep * weights + sum of take * pushed) / divisor
// element by element, from keep = 0 where the sum is a gradient or a delta. Of gradients of summed losses weighed by
// targets that is their sum divided by all targets: one gradient of the mean loss over everything that has run.
// Pure. Errors: none.
#pragma once

#include <cstddef>
#include <vector>

#include "ps/policy/push_record.h"
#include "ps/policy/sync_policy.h"

namespace sluice::ps {

struct MixPart {
  std::size_t push = 0;  // position in the list of records
  double take = 1;
};

struct Mix {
  double keep = 0;  // of the weights before
  std::vector<MixPart> parts;
  double divisor = 1;
};

// What an update of these pushes does, one mix after the other; all of one kind of payload. Pushes without a target are
// in none; nothing is left to do where all are.
[[nodiscard]] std::vector<Mix> mixes_of(const SyncPolicy& policy, const std::vector<PushRecord>& records);

}  // namespace sluice::ps
