// pass_sums: what the micro-batches of a pass add up to in this process. Not here: other processes. They wait for the
// devices. Threads: one.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "comm/replica_sync.h"
#include "core/step_stats.h"
#include "pipeline/pass_request.h"

namespace sluice::engine {

using MicroBatches = std::vector<std::vector<pipeline::MicroBatch>>;  // [replica][micro-batch]

// [replica]: the samples and targets of its micro-batches that have run.
[[nodiscard]] std::vector<comm::ReplicaShare> shares_run(const pipeline::PassResult& result,
                                                         const MicroBatches& micro_batches);
[[nodiscard]] double sum_of_losses(const pipeline::PassResult& result);
[[nodiscard]] EvalCounts sum_of_counts(const pipeline::PassResult& result);
// On the CPU, in the order of the batch; undefined where none were kept.
[[nodiscard]] at::Tensor logits_in_order(const pipeline::PassResult& result);

}  // namespace sluice::engine
