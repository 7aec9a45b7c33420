// replica_sum: adds numbers up over all replicas that run the same micro-batch, for what a layer must know of the
// others' samples (synchronised batch-norm). Not here: who the replicas are and how the numbers travel
// (pipeline/statistics_exchange.h).
#pragma once

#include <ATen/core/Tensor.h>

namespace sluice::nn {

class ReplicaSum {
 public:
  virtual ~ReplicaSum() = default;

  // float64, on the CPU; the same bits for every replica. Blocks until all have called: each of them makes the same
  // calls in the same order, also for a micro-batch in which it has no samples.
  [[nodiscard]] virtual at::Tensor sum(const at::Tensor& own) = 0;
};

}  // namespace sluice::nn
