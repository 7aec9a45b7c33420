// batch_norm_sync: batch normalisation of a micro-batch by its statistics over all replicas, with the exact gradient
// (Ioffe and Szegedy 2015, for the union of the replicas' micro-batches). Forward exchanges a count, the means and the
// mean squares. Backward exchanges the two sums of the gradient that pass through the statistics. A replica without
// samples takes part in both with zeros.
// Order of exchanges: autograd on a CPU device runs the backward nodes of a graph in reverse order of their creation.
// All replicas run the same layers, so they exchange in the same order.
#pragma once

#include "nn/batch_norm.h"
#include "nn/replica_sum.h"

namespace sluice::nn {

// x: [N, C, H, W]; weight, bias: [C]. No residual or activation is applied. Returns statistics over all replicas.
[[nodiscard]] BatchNormResult batch_norm_sync(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                              double epsilon, ReplicaSum& replicas);

// The exchanges of batch_norm_sync() in forward and in backward, for a replica without samples.
[[nodiscard]] BatchStatistics sync_statistics_of_others(std::int64_t channels, ReplicaSum& replicas);
void sync_gradient_of_others(std::int64_t channels, ReplicaSum& replicas);

}  // namespace sluice::nn
