// batch_norm_sync: batch normalisation by statistics over all replicas' micro-batches, with the exact gradient (Ioffe
// and Szegedy 2015). Forward exchanges counts, means and mean squares; backward exchanges the two sums of the gradient
// that pass through the statistics. A replica without samples takes part in both with zeros.
// Order: autograd on a CPU device runs backward nodes in reverse order of creation, so all replicas exchange alike.
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
