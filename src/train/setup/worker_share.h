// worker_share: the samples that a worker of a parameter server leases at once, for one step, all local steps or a
// share of an epoch. Pure. Errors: ConfigError.
#pragma once

#include <cstdint>
#include <vector>

#include "data/ledger.h"
#include "ps/worker_sync.h"
#include "train/setup/setup.h"

namespace sluice::train {

struct WorkerShare {
  std::int64_t batch = 1;  // samples of one step
  std::int64_t samples = 1;
  double factor = 1;  // weight of a push of `samples` samples (PushRecord)

  [[nodiscard]] std::int64_t steps() const;
};

// With dual batch sizes, the last ps.small_workers of ps.workers have the small batch.
[[nodiscard]] WorkerShare share_of(const Setup& setup, int worker);

[[nodiscard]] std::vector<data::Lease> steps_of(const data::Lease& lease, const WorkerShare& share);
[[nodiscard]] ps::Round round_of(const data::Lease& lease, const WorkerShare& share);

}  // namespace sluice::train
