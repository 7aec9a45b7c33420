// optimizer: SGD, momentum, RMSprop, Adam, AdamW and LAMB (lamb.h) over a stage's flat buffer, by torch.optim's update
// rules. The average of the weights is that of torch.optim.swa_utils.AveragedModel with get_ema_multi_avg_fn.
// Delayed Nesterov (Liu et al., 2024, arXiv 2401.09135) is for gradients that arrive one by one, each computed on older
// weights. Each of N gradients moves the weights by its N-th part; only the last one applies momentum, of their mean.
// Threads: after one begin_step(), update() of disjoint parts may run at once.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace sluice::optim {

struct OptimizerOptions {
  // "sgd", "momentum", "rmsprop", "adam" (weight decay in the gradient), "adamw" (decoupled) or "lamb"
  std::string kind = "momentum";
  double momentum = 0.9;
  bool nesterov = false;
  int nesterov_delay = 0;  // N of delayed Nesterov, for "momentum"; 0: off
  double weight_decay = 0;
  double rms_alpha = 0.99;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  bool amsgrad = false;        // for "adam" and "adamw"
  double ema_decay = 0;        // 0: no average of the weights
  std::int64_t ema_every = 1;  // steps
};

inline constexpr const char* kAverage = "ema";  // name of the average among the states

// Elements with the same settings. For LAMB: one parameter.
struct UpdateRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool decays = true;
  double lr_factor = 1;
  std::int64_t missed = 0;  // optimizer steps without an update, because its layer was frozen
};

[[nodiscard]] std::string name_of(const OptimizerOptions& options);
[[nodiscard]] int count_states(const OptimizerOptions& options);

struct BufferPart {
  int index = 0;
  int count = 1;
};

class Optimizer {
 public:
  // `values` and `gradients`: flat, in the same layout; update() reads and writes them. `ranges`: sorted, without
  // overlap; the elements between them are zero and stay zero. Empty: one range of all elements.
  Optimizer(OptimizerOptions options, at::Tensor values, at::Tensor gradients, std::vector<UpdateRange> ranges = {});

  void use_values(at::Tensor values) { values_ = std::move(values); }
  void use_gradients(at::Tensor gradients) { gradients_ = std::move(gradients); }

  void begin_step() { ++steps_; }
  // Applies the current gradients, divided by `divisor`, to one part; LAMB to the parameters that begin in it.
  void update(double lr, double divisor, BufferPart part);

  // Flat state tensors by name, as torch.optim names them, and gradient_sum with a delay; kAverage comes last.
  [[nodiscard]] const std::vector<std::pair<std::string, at::Tensor>>& states() const { return states_; }
  [[nodiscard]] at::Tensor average() const { return options_.ema_decay > 0 ? states_.back().second : at::Tensor(); }
  [[nodiscard]] std::int64_t steps() const { return steps_; }
  // Number of updates of each range given to the constructor, as torch.optim's `step` of a parameter.
  [[nodiscard]] std::vector<std::int64_t> updates() const;
  // Continues after `steps` steps. updates: as returned by updates(); empty: every step updated every range.
  void set_steps(std::int64_t steps, const std::vector<std::int64_t>& updates = {});

 private:
  struct Range {
    std::int64_t begin, end;
  };

  // The same ranges of values, gradients and states: [range].
  struct Slices {
    std::vector<at::Tensor> values, gradients;
    std::vector<std::vector<at::Tensor>> states;  // [state][range]
  };

  // Ranges of a part that are updated at the same rates.
  struct Group {
    double lr = 0;
    double weight_decay = 0;
    std::int64_t updates = 0;  // of the ranges, including this one
    std::vector<Range> ranges;
  };

  void merge_ranges();
  [[nodiscard]] bool is_fused() const;
  [[nodiscard]] std::vector<Group> groups(double lr, BufferPart part) const;
  [[nodiscard]] Slices slices(std::span<const Range> ranges) const;
  void update_group(const Group& group, double divisor) const;
  void update_by_lamb(const Slices& all, const Group& group) const;
  void update_in_blocks(const Group& group) const;
  void update_average(const Slices& all) const;
  void update_sgd(const Slices& all, const Group& group, const std::optional<at::Tensor>& divisor) const;
  void update_rmsprop(const Slices& block, const at::Tensor& gradient, double lr) const;
  void update_delayed_nesterov(const Slices& block, const at::Tensor& gradient, double lr) const;
  void update_adam(const Slices& all, const Group& group, const std::optional<at::Tensor>& divisor) const;

  OptimizerOptions options_;
  at::Tensor values_;
  at::Tensor gradients_;
  std::vector<UpdateRange> given_;
  std::vector<UpdateRange> ranges_;  // given_, with equal neighbours joined
  std::vector<std::pair<std::string, at::Tensor>> states_;
  std::int64_t steps_ = 0;
};

}  // namespace sluice::optim
