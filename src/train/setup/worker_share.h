// worker_share: what a worker of a parameter server takes at once: the samples of one step; or, where workers make
// steps of their own between pushes, those of all of them; with dual batch sizes its share of an epoch, in batches of
// its own size. Pure. Errors: ConfigError where no such shares are.
#pragma once

#include <cstdint>
#include <vector>

#include "data/ledger.h"
#include "ps/worker_sync.h"
#include "train/setup/setup.h"

namespace sluice::train {

struct WorkerShare {
  std::int64_t batch = 1;    // samples of one of its steps
  std::int64_t samples = 1;  // of a push
  double factor = 1;         // of a push of so many samples (PushRecord)

  [[nodiscard]] std::int64_t steps() const;  // of such a push
};

// With dual batch sizes the last ps.small_workers of ps.workers have the small batch.
[[nodiscard]] WorkerShare share_of(const Setup& setup, int worker);

// A lease, which may be shorter than the share, as the samples of its steps, which are nearly equal; and what the
// worker does with it.
[[nodiscard]] std::vector<data::Lease> steps_of(const data::Lease& lease, const WorkerShare& share);
[[nodiscard]] ps::Round round_of(const data::Lease& lease, const WorkerShare& share);

}  // namespace sluice::train
