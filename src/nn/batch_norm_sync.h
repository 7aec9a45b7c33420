// batch_norm_sync: batch normalisation of a micro-batch by its statistics over all replicas, with the exact gradient
// (Ioffe and Szegedy 2015, where the batch is the union of the replicas' micro-batches). Forward exchanges a count, the
// means and the mean squares; backward the two sums of the gradient that pass through the statistics. A replica without
// samples takes part in both with zeros.
// Order: autograd on a CPU device runs the backward nodes of a graph in the reverse order of their making, so all
// replicas, which run the same layers, exchange in the same order.
#pragma once

#include "nn/batch_norm.h"
#include "nn/replica_sum.h"

namespace sluice::nn {

// x [N, C, H, W]; weight, bias [C]. No residual, no activation. The statistics are those over all replicas.
[[nodiscard]] BatchNormResult batch_norm_sync(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                              double epsilon, ReplicaSum& replicas);

// What batch_norm_sync() exchanges in forward and in backward, without samples of one's own.
[[nodiscard]] BatchStatistics sync_statistics_of_others(std::int64_t channels, ReplicaSum& replicas);
void sync_gradient_of_others(std::int64_t channels, ReplicaSum& replicas);

}  // namespace sluice::nn
