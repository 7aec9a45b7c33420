#include "engine/pass_sums.h"

#include <ATen/ATen.h>

#include "nn/loss.h"

namespace sluice::engine {

std::vector<comm::ReplicaShare> shares_run(const pipeline::PassResult& result, const MicroBatches& micro_batches) {
  std::vector<comm::ReplicaShare> shares(micro_batches.size());
  for (std::size_t r = 0; r < micro_batches.size(); ++r) {
    for (std::size_t m = 0; m < micro_batches[r].size(); ++m) {
      if (!result.micro_batches[r][m].has_run) continue;
      shares[r].samples += micro_batches[r][m].samples();
      shares[r].targets += nn::count_targets(micro_batches[r][m].targets);
    }
  }
  return shares;
}

double sum_of_losses(const pipeline::PassResult& result) {
  double sum = 0;
  for (const auto& of_replica : result.micro_batches) {
    for (const auto& micro_batch : of_replica) {
      if (micro_batch.loss.defined()) sum += micro_batch.loss.item<double>();
    }
  }
  return sum;
}

EvalCounts sum_of_counts(const pipeline::PassResult& result) {
  EvalCounts sum;
  for (const auto& of_replica : result.micro_batches) {
    for (const auto& micro_batch : of_replica) {
      if (micro_batch.score.defined()) sum += nn::counts_of(micro_batch.score);
    }
  }
  return sum;
}

at::Tensor logits_in_order(const pipeline::PassResult& result) {
  std::vector<at::Tensor> parts;
  for (const auto& of_replica : result.micro_batches) {
    for (const auto& micro_batch : of_replica) {
      if (micro_batch.logits.defined()) parts.push_back(micro_batch.logits.cpu());
    }
  }
  return parts.empty() ? at::Tensor() : at::cat(parts);
}

}  // namespace sluice::engine
