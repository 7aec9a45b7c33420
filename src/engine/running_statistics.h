// running_statistics: makes the running statistics of batch-norm layers equal in all replicas after every step, so that
// evaluations and checkpoints can read any replica.
// Threads: one, between steps. Errors: none.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/compose.h"
#include "nn/layer.h"

namespace sluice::engine {

// kDeferred: every replica takes in the statistics of the whole mini-batch, as if one device had seen it.
// kSync: already equal.
// kMicro: the replicas have taken in their micro-batches; their running statistics become the mean, weighted by
// samples.
// samples: [replica of this process], samples that have run in the step.
void merge_running_statistics(const Composition& composition, nn::BatchNormMode mode,
                              const std::vector<std::int64_t>& samples);

}  // namespace sluice::engine
