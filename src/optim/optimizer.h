// optimizer: SGD, momentum, Adam and AdamW over a stage's flat buffer, with ATen's fused kernels: a few calls per step
// whatever the number of parameters. Equal to torch.optim's update rules.
// Not here: the learning rate over time (lr_schedule.h); which gradients (pipeline/flat_parameters.h).
// Threads: update() of disjoint parts may run at once, after one begin_step().
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace sluice::optim {

struct OptimizerOptions {
  std::string kind = "momentum";  // sgd, momentum, adam (weight decay in the gradient), adamw (decoupled)
  double momentum = 0.9;
  bool nesterov = false;
  double weight_decay = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
};

// Tensors of the parameters' size that it keeps.
[[nodiscard]] int count_states(const OptimizerOptions& options);

// Number `index` of `count` nearly equal ranges of a flat buffer.
struct BufferPart {
  int index = 0;
  int count = 1;
};

class Optimizer {
 public:
  // `values` and `gradients`: flat, same layout; read and written by update().
  Optimizer(OptimizerOptions options, at::Tensor values, at::Tensor gradients);

  void begin_step() { ++steps_; }
  // Applies the current gradients, divided by `divisor`, to one part.
  void update(double lr, double divisor, BufferPart part);

  // Flat state tensors by name: momentum_buffer; exp_avg, exp_avg_sq.
  [[nodiscard]] const std::vector<std::pair<std::string, at::Tensor>>& states() const { return states_; }
  [[nodiscard]] std::int64_t steps() const { return steps_; }
  void set_steps(std::int64_t steps) { steps_ = steps; }

 private:
  OptimizerOptions options_;
  at::Tensor values_;
  at::Tensor gradients_;
  std::vector<std::pair<std::string, at::Tensor>> states_;
  std::int64_t steps_ = 0;
};

}  // namespace sluice::optim
