// shard_state: one shard on a server: its values and its part of the optimizer. Threads: one at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "optim/optimizer.h"
#include "ps/policy/mix.h"

namespace sluice::ps {

class ShardState {
 public:
  ShardState(const optim::OptimizerOptions& optimizer, const at::Tensor& values);

  // Adds up gradients or deltas, [push of the mix's records]; not yet divided by Mix::divisor. Overwrites the first.
  void add_up(const Mix& mix, const std::vector<at::Tensor>& pushed);
  [[nodiscard]] double sum_of_squares() const;
  [[nodiscard]] bool is_finite() const;
  // Runs an optimizer step on the sum divided by `divisor`, and drops the sum.
  void update(double lr, double divisor);
  // Computes the weights of a mix without an optimizer. False: not finite. take_mixed() commits them.
  [[nodiscard]] bool mix_weights(const Mix& mix, const std::vector<at::Tensor>& pushed);
  void take_mixed();

  // Restores an earlier optimizer: its states by name, and its number of updates.
  void load_optimizer(const std::string& name, const at::Tensor& state);
  void set_updates(std::int64_t updates) { optimizer_.set_steps(updates); }

  // The current values, which never change: while a caller holds them, updates write into other memory. Threads: any.
  [[nodiscard]] at::Tensor values() const { return values_.detach(); }
  [[nodiscard]] const optim::Optimizer& optimizer() const { return optimizer_; }

 private:
  void use_values(at::Tensor values);

  at::Tensor values_;  // 1-d, on the CPU; only this object has the tensor, but others may share its memory
  at::Tensor sum_;     // sum of the current update, or mixed weights that are not committed yet
  optim::Optimizer optimizer_;
};

}  // namespace sluice::ps
