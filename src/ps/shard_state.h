// shard_state: one shard of the parameters on a server: its values, and its part of the optimizer. It is told what to
// do by numbers alone (ps/policy/mix.h), so that all shards of all servers do the same.
// Threads: one at a time. Errors: none.
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

  // The sum that an update begins with, of gradients or deltas; [push of the mix's records]. Not yet divided by
  // Mix::divisor. It takes the memory of the first push: what is in there is lost.
  void add_up(const Mix& mix, const std::vector<at::Tensor>& pushed);
  [[nodiscard]] double sum_of_squares() const;  // of that sum
  [[nodiscard]] bool is_finite() const;
  // An optimizer step on that sum divided by `divisor`. The sum is gone afterwards.
  void update(double lr, double divisor);
  // The weights that come of a mix; no optimizer. False where they are not finite. They are taken by take_mixed().
  [[nodiscard]] bool mix_weights(const Mix& mix, const std::vector<at::Tensor>& pushed);
  void take_mixed();

  // Goes on from an earlier one's: its states by name, after so many updates.
  void load_optimizer(const std::string& name, const at::Tensor& state);
  void set_updates(std::int64_t updates) { optimizer_.set_steps(updates); }

  // As they are now, and as they stay: what comes while anybody holds them goes into other memory. They may be read and
  // let go of in any thread.
  [[nodiscard]] at::Tensor values() const { return values_.detach(); }
  [[nodiscard]] const optim::Optimizer& optimizer() const { return optimizer_; }

 private:
  void use_values(at::Tensor values);

  at::Tensor values_;  // 1-d, on the CPU; nobody else has this tensor, but for its memory
  at::Tensor sum_;     // of an update that is being made; or weights that are not taken yet
  optim::Optimizer optimizer_;
};

}  // namespace sluice::ps
