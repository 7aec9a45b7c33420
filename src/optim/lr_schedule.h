// lr_schedule: the learning rate as a pure function of the optimizer step. One unit everywhere: optimizer steps, from
// 0. All but "onecycle" begin with a linear warm-up: step s < warmup_steps uses lr * (s + 1) / warmup_steps.
//   "constant"
//   "plateau"      constant but for falls, which who evaluates decides (train/setup/eval_history.h): times `decay` for
//   each,
//                  no lower than lr_min, as torch's ReduceLROnPlateau
//   "step"         times `decay` at each of `decay_steps`, or every `decay_every` steps
//   "exponential"  times decay^(s / decay_every): torch's ExponentialLR with decay_every = 1
//   "cosine", "linear", "polynomial"  fall over the steps that remain, and would be at lr_min one step after the last:
//                  as torch's CosineAnnealingLR, LinearLR and PolynomialLR (of `power`) with their number
//   "onecycle"     Smith & Topin's (2018) as torch's OneCycleLR computes it: cosine from lr / 25 up to lr, then down to
//                  lr / 250000 at the last step; the rise takes warmup_steps, or 30 % of the steps when that is 0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice::optim {

struct LrSchedule {
  std::string kind = "constant";
  double lr = 0.01;
  double lr_min = 0;
  std::int64_t warmup_steps = 0;
  std::int64_t total_steps = 1;
  std::vector<std::int64_t> decay_steps;
  std::int64_t decay_every = 0;  // 0: at decay_steps, of "step"
  double decay = 0.1;
  double power = 1;

  // falls: of "plateau", so far.
  [[nodiscard]] double at(std::int64_t step, int falls = 0) const;
};

}  // namespace sluice::optim
