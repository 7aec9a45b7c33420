// replica_sum: adds numbers up over all replicas that run the same micro-batch (pipeline/statistics_exchange.h).
#pragma once

#include <ATen/core/Tensor.h>

namespace sluice::nn {

class ReplicaSum {
 public:
  virtual ~ReplicaSum() = default;

  // Tensors are float64 on the CPU; every replica gets the same bits. Blocks until all replicas have called. Each
  // replica must make the same calls in the same order, also for a micro-batch without samples.
  [[nodiscard]] virtual at::Tensor sum(const at::Tensor& own) = 0;
};

}  // namespace sluice::nn
