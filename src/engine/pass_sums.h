// pass_sums: sums over the micro-batches of a pass in this process, read after the pass with one copy for all alike
// results of a GPU, and added in the order of the micro-batches. Threads: one.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "comm/replica_sync.h"
#include "pipeline/pass_request.h"
#include "task/task.h"

namespace sluice::engine {

using MicroBatches = std::vector<std::vector<pipeline::MicroBatch>>;  // [replica][micro-batch]

[[nodiscard]] std::vector<at::Tensor> on_cpu(std::vector<at::Tensor> tensors);

// [replica]: samples and targets of its micro-batches that have run.
[[nodiscard]] std::vector<comm::ReplicaShare> shares_run(const pipeline::PassResult& result,
                                                         const MicroBatches& micro_batches, const task::Task& task);
[[nodiscard]] double sum_of_losses(const pipeline::PassResult& result);
// ScoreSums::sums, zeros if nothing has run.
[[nodiscard]] std::vector<double> sum_of_scores(const pipeline::PassResult& result, const task::Task& task);
// [micro-batch that has run]: its loss, and with counts_scores its scores (ScoreSums::sums).
[[nodiscard]] std::vector<std::vector<double>> numbers_of_micro_batches(const pipeline::PassResult& result,
                                                                        const task::Task& task, bool counts_scores);
// Joins logits [n, ...] of micro-batches; narrower ones are padded with zeros, as texts are. Undefined without parts.
[[nodiscard]] at::Tensor joined_logits(const std::vector<at::Tensor>& parts);
// On the CPU, in the order of the batch; undefined if logits were not kept.
[[nodiscard]] at::Tensor logits_in_order(const pipeline::PassResult& result);

}  // namespace sluice::engine
