// optimizer: SGD, momentum, RMSprop, Adam, AdamW (both also with AMSGrad) and LAMB (lamb.h) over a stage's flat buffer,
// with ATen's fused kernels where it has them: a few calls per step whatever the number of parameters. Equal to
// torch.optim's update rules.
// An exponential moving average of the weights is kept beside them on demand, as torch.optim.swa_utils.AveragedModel
// with get_ema_multi_avg_fn does: the first average is a copy, and until then it is what the weights are.
// Delayed Nesterov (Liu et al., 2024, arXiv 2401.09135) is for gradients that are taken in one by one, each of older
// weights: of N in a row each moves the weights by its N-th part, and only the last one brings momentum, of their mean.
// Together they do what one Nesterov step on that mean does.
// Not here: the learning rate over time (lr_schedule.h); which gradients (pipeline/flat_parameters.h).
// Threads: update() of disjoint parts may run at once, after one begin_step().
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace sluice::optim {

struct OptimizerOptions {
  // sgd, momentum, rmsprop, adam (weight decay in the gradient), adamw (decoupled), lamb
  std::string kind = "momentum";
  double momentum = 0.9;
  bool nesterov = false;
  int nesterov_delay = 0;  // N of delayed Nesterov, of the kind "momentum"; 0: not
  double weight_decay = 0;
  double rms_alpha = 0.99;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  bool amsgrad = false;        // of adam and adamw
  double ema_decay = 0;        // 0: no average of the weights
  std::int64_t ema_every = 1;  // steps
};

inline constexpr const char* kAverage = "ema";  // the name of its state

// Elements that are updated alike. For lamb: one parameter.
struct UpdateRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool decays = true;
  double lr_factor = 1;
  std::int64_t missed = 0;  // of the optimizer's steps, those in which it was not updated: its layer was frozen
};

// What it costs goes by this: its kind, and what it keeps besides: "adamw", "adam+amsgrad+ema".
[[nodiscard]] std::string name_of(const OptimizerOptions& options);
// Tensors of the parameters' size that it keeps.
[[nodiscard]] int count_states(const OptimizerOptions& options);

// Number `index` of `count` nearly equal ranges of a flat buffer.
struct BufferPart {
  int index = 0;
  int count = 1;
};

class Optimizer {
 public:
  // `values` and `gradients`: flat, same layout; read and written by update(). ranges: in order, without overlap;
  // between them are zeros only, which stay so. Empty: all is one range.
  Optimizer(OptimizerOptions options, at::Tensor values, at::Tensor gradients, std::vector<UpdateRange> ranges = {});

  // Of the updates to come, in the place of those before.
  void use_values(at::Tensor values) { values_ = std::move(values); }
  void use_gradients(at::Tensor gradients) { gradients_ = std::move(gradients); }

  void begin_step() { ++steps_; }
  // Applies the current gradients, divided by `divisor`, to one part; of lamb to the parameters that begin there.
  void update(double lr, double divisor, BufferPart part);

  // Flat state tensors by name: momentum_buffer, with a delay also gradient_sum; square_avg; exp_avg, exp_avg_sq, with
  // amsgrad max_exp_avg_sq; last the average of the weights, kAverage.
  [[nodiscard]] const std::vector<std::pair<std::string, at::Tensor>>& states() const { return states_; }
  // The average of the weights; undefined where there is none.
  [[nodiscard]] at::Tensor average() const { return options_.ema_decay > 0 ? states_.back().second : at::Tensor(); }
  [[nodiscard]] std::int64_t steps() const { return steps_; }
  // [range] of the constructor's: in how many of these steps it was updated. Adam, AdamW and LAMB correct the bias of
  // their means by it, as torch.optim does by the `step` of a parameter.
  [[nodiscard]] std::vector<std::int64_t> updates() const;
  // Goes on after so many steps. updates: as updates() returns them; empty: every range was updated in every step.
  void set_steps(std::int64_t steps, const std::vector<std::int64_t>& updates = {});

 private:
  struct Slice {
    at::Tensor values, gradients;
    std::vector<at::Tensor> states;
  };

  struct Rates {
    double lr = 0;
    double weight_decay = 0;
    std::int64_t updates = 0;  // of the range, with this one
  };

  void merge_ranges();
  [[nodiscard]] bool is_fused() const;
  [[nodiscard]] Slice slice(std::int64_t begin, std::int64_t end) const;
  void update_range(std::int64_t begin, std::int64_t end, const Rates& rates, double divisor) const;
  void update_in_blocks(std::int64_t begin, std::int64_t end, const Rates& rates) const;
  void update_average(const Slice& slice) const;
  void update_sgd(const Slice& slice, const Rates& rates, const std::optional<at::Tensor>& divisor) const;
  void update_rmsprop(const Slice& slice, const at::Tensor& gradient, double lr) const;
  void update_delayed_nesterov(const Slice& slice, const at::Tensor& gradient, double lr) const;
  void update_adam(const Slice& slice, const Rates& rates, const std::optional<at::Tensor>& divisor) const;

  OptimizerOptions options_;
  at::Tensor values_;
  at::Tensor gradients_;
  std::vector<UpdateRange> given_;   // the constructor's
  std::vector<UpdateRange> ranges_;  // neighbours that are updated alike as one
  std::vector<std::pair<std::string, at::Tensor>> states_;
  std::int64_t steps_ = 0;
};

}  // namespace sluice::optim
