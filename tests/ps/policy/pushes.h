// pushes: records of pushes as workers would send them.
#pragma once

#include "ps/policy/push_record.h"

namespace sluice::ps {

inline PushRecord push_of(int worker, std::int64_t sequence, std::int64_t base_version = 0, int incarnation = 1) {
  return {.worker = WorkerId{worker},
          .incarnation = incarnation,
          .sequence = sequence,
          .base_version = base_version,
          .examples = 1,
          .targets = 1};
}

}  // namespace sluice::ps
