// mix: the numbers by which pushes are merged into one update. A server computes, element by element,
//   (keep * weights + sum of take * pushed) / divisor
// with keep = 0 if the sum is a gradient or a delta. Gradients of summed losses with weights = targets give their sum
// divided by all targets: one gradient of the mean loss over all samples of the update. Pure. Errors: never throws.
#pragma once

#include <cstddef>
#include <vector>

#include "ps/policy/push_record.h"
#include "ps/policy/sync_policy.h"

namespace sluice::ps {

struct MixPart {
  std::size_t push = 0;  // index in the list of records
  double take = 1;
};

struct Mix {
  double keep = 0;  // factor of the previous weights
  std::vector<MixPart> parts;
  double divisor = 1;
};

// To be applied one after the other. Pushes without a target are left out; if no push has one, the result is empty.
[[nodiscard]] std::vector<Mix> mixes_of(const SyncPolicy& policy, const std::vector<PushRecord>& records);

}  // namespace sluice::ps
