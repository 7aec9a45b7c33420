// running_statistics: makes the running statistics of batch-norm equal in all replicas after every step. Threads: one.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/compose.h"
#include "nn/layer.h"

namespace sluice::engine {

// kDeferred: every replica takes in the statistics of the whole mini-batch, as if one device had seen it.
// kSync: already equal.
// kMicro: the mean of the replicas' statistics, weighted by samples.
// samples: [replica of this process], samples that have run in the step.
// micro_batches: of the step, over all replicas, if they are numbered (nn::ForwardContext::micro_batch), else 0. All
// replicas then take in the same statistics in the same order: of every micro-batch (kMicro), or once of all of them
// (kDeferred).
void merge_running_statistics(const Composition& composition, nn::BatchNormMode mode,
                              const std::vector<std::int64_t>& samples, std::int64_t micro_batches = 0);

}  // namespace sluice::engine
