// batch_norm: batch normalisation of [N, C, H, W] with optional residual and ReLU in one pass, and its module.
// CPU kernels of this project run for float32 and bfloat16, channels_last, C a multiple of 16. GPUs in float32 and
// bfloat16: batch_norm_gpu.h. Everything else uses ATen.
// In training each call normalises by its own micro-batch, in mode kSync over all replicas (batch_norm_sync.h). A NaN
// or infinite value makes its channel NaN. So does a variance beyond the type's range, which would otherwise give
// finite outputs (1 / infinity = 0).
#pragma once

#include <optional>

#include "nn/registry.h"

namespace sluice::nn {

struct BatchStatistics {
  at::Tensor mean;      // [C]
  at::Tensor variance;  // [C], biased
  std::int64_t count = 0;
};

// Statistics of the union of two sets, in float64. An empty set (count 0) may have undefined tensors.
[[nodiscard]] BatchStatistics pooled(const BatchStatistics& a, const BatchStatistics& b);

// Sums that can be added over sets, [1 + 2 channels] float64 on the CPU: n, n mean, n (variance + mean^2).
[[nodiscard]] at::Tensor to_sums(const BatchStatistics& statistics, std::int64_t channels);
[[nodiscard]] BatchStatistics from_sums(const at::Tensor& sums);

enum class Activation { kNone, kRelu };

struct RunningStatistics {
  at::Tensor mean, variance;  // [C], updated in place; variance: unbiased
  double momentum;            // weight of a new batch
};

struct BatchNormResult {
  at::Tensor y;
  BatchStatistics statistics;  // detached; only the count if has_updated_running
  bool has_updated_running = false;
};
// activation(normalised(x) * weight + bias + residual). residual may be undefined. running: statistics to update with
// this batch, or null. Only GPU kernels update them; has_updated_running says so.
BatchNormResult batch_norm_training(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight,
                                    const at::Tensor& bias, double epsilon, Activation activation,
                                    const RunningStatistics* running = nullptr);

struct BatchNormNumbers {
  double epsilon = 1e-5;
  double momentum = 0.1;  // of the running statistics
};

// What another object owns. Null: weights of 1, biases of 0, and no count.
struct BatchNormState {
  Parameter *weight = nullptr, *bias = nullptr;
  Buffer *running_mean = nullptr, *running_var = nullptr, *batches_tracked = nullptr;
};

class BatchNorm2d {
 public:
  BatchNorm2d(Registry& registry, const std::string& name, std::int64_t channels);
  BatchNorm2d(const BatchNormState& state, const BatchNormNumbers& numbers) : state_(state), numbers_(numbers) {}

  [[nodiscard]] at::Tensor operator()(const at::Tensor& x, const ForwardContext& context, Activation activation,
                                      const at::Tensor& residual = {});

  // This replica's part in the exchanges of kSync, for a micro-batch without samples here. No effect without replicas.
  void take_part_in_forward(const ForwardContext& context);
  void take_part_in_backward(const ForwardContext& context) const;

  [[nodiscard]] std::int64_t channels() const { return state_.running_mean->value.numel(); }

  struct Collected {
    std::int64_t micro_batch;  // ForwardContext::micro_batch
    BatchStatistics statistics;
  };
  // Statistics since the last call: one entry for each numbered micro-batch, pooled over the calls for it, in the order
  // in which they ran. Deferred mode without numbers: at most one entry. Micro mode without numbers: none.
  [[nodiscard]] std::vector<Collected> collect();
  // Updates the running statistics; an empty batch changes nothing.
  void take_in(const BatchStatistics& batch);

 private:
  [[nodiscard]] at::Tensor weight() const;
  [[nodiscard]] at::Tensor bias() const;
  void count_batch();
  void keep(std::int64_t micro_batch, const BatchStatistics& statistics);

  BatchNormState state_;  // batches_tracked: int64, 0-d
  BatchNormNumbers numbers_;
  std::vector<Collected> pending_;
};

}  // namespace sluice::nn
