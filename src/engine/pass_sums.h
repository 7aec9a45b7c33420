// pass_sums: what the micro-batches of a pass add up to in this process. Not here: other processes. While the pass runs
// it all stays on the devices; here it is read once it is over, what is alike of one GPU in one copy, whatever the
// number of micro-batches. Added up on the CPU in their order. Threads: one.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "comm/replica_sync.h"
#include "core/step_stats.h"
#include "pipeline/pass_request.h"

namespace sluice::engine {

using MicroBatches = std::vector<std::vector<pipeline::MicroBatch>>;  // [replica][micro-batch]

// The same tensors, those of GPUs copied: of one GPU, type and shape together.
[[nodiscard]] std::vector<at::Tensor> on_cpu(std::vector<at::Tensor> tensors);

// [replica]: the samples and targets of its micro-batches that have run.
[[nodiscard]] std::vector<comm::ReplicaShare> shares_run(const pipeline::PassResult& result,
                                                         const MicroBatches& micro_batches);
[[nodiscard]] double sum_of_losses(const pipeline::PassResult& result);
[[nodiscard]] EvalCounts sum_of_counts(const pipeline::PassResult& result);
// On the CPU, in the order of the batch; undefined where none were kept.
[[nodiscard]] at::Tensor logits_in_order(const pipeline::PassResult& result);

}  // namespace sluice::engine
