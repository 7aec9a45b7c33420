// batch_norm: batch normalisation of [N, C, H, W] with an optional residual and ReLU in the same pass, and the module
// with torch's parameters and buffers.
// Fast path: float32, CPU, channels_last, C a multiple of 16: own kernels that save only what the neighbours save
// anyway (x, y). On GPUs in float32 and bfloat16: batch_norm_gpu.h. Everything else: ATen's operations and autograd.
// Statistics: each call normalises by its own micro-batch when training, over all replicas in mode kSync
// (batch_norm_sync.h). Running statistics: BatchNormMode in layer.h. A NaN or infinite value makes its channel NaN; so
// does a variance beyond the type's range, which would leave finite outputs (1 / infinity = 0) and an infinite running
// variance.
#pragma once

#include <optional>

#include "nn/registry.h"

namespace sluice::nn {

struct BatchStatistics {
  at::Tensor mean;      // [C]
  at::Tensor variance;  // [C], biased
  std::int64_t count = 0;
};

// Statistics of two sets taken as one, in float64; an empty set (count 0) may have no tensors.
[[nodiscard]] BatchStatistics pooled(const BatchStatistics& a, const BatchStatistics& b);

// Statistics as numbers that can be added up over sets, and back: count, count * mean, count * (variance + mean^2);
// [1 + 2 channels] float64 on the CPU.
[[nodiscard]] at::Tensor to_sums(const BatchStatistics& statistics, std::int64_t channels);
[[nodiscard]] BatchStatistics from_sums(const at::Tensor& sums);

enum class Activation { kNone, kRelu };

// activation(normalised(x) * weight + bias + residual), normalised by the statistics of x, which are returned detached.
// residual: undefined, or shaped like x.
struct BatchNormResult {
  at::Tensor y;
  BatchStatistics statistics;
};
BatchNormResult batch_norm_training(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight,
                                    const at::Tensor& bias, double epsilon, Activation activation);

class BatchNorm2d {
 public:
  // Registers `name`.weight, .bias and the buffers .running_mean, .running_var, .num_batches_tracked.
  BatchNorm2d(Registry& registry, const std::string& name, std::int64_t channels);

  [[nodiscard]] at::Tensor operator()(const at::Tensor& x, const ForwardContext& context, Activation activation,
                                      const at::Tensor& residual = {});

  // Where a micro-batch has no samples for this replica: its part in the exchanges of kSync. Nothing without
  // context.replicas.
  void take_part_in_forward(const ForwardContext& context);
  void take_part_in_backward(const ForwardContext& context) const;

  [[nodiscard]] std::int64_t channels() const { return running_mean_->value.numel(); }

  // Deferred mode: the statistics of all samples since the last call; of none in micro mode.
  [[nodiscard]] BatchStatistics collect();
  // Running statistics take in a batch; nothing when it is empty.
  void take_in(const BatchStatistics& batch);

 private:
  Parameter* weight_;
  Parameter* bias_;
  Buffer* running_mean_;
  Buffer* running_var_;
  Buffer* batches_tracked_;  // int64, 0-d
  BatchStatistics pending_;  // deferred mode: float64, joined over micro-batches
};

}  // namespace sluice::nn
