// lr_schedule: the learning rate as a pure function of the optimizer step s, counted from 0. All kinds but "onecycle"
// begin with a linear warm-up: steps s < warmup_steps use lr * (s + 1) / warmup_steps.
//   "constant"
//   "plateau"      constant between falls; each fall multiplies by `decay`, down to lr_min at the lowest, as torch's
//                  ReduceLROnPlateau. train/setup/eval_history.h decides when to fall.
//   "step"         multiplied by `decay` at each of `decay_steps`, or every `decay_every` steps
//   "exponential"  multiplied by decay^(s / decay_every); decay_every = 1 is torch's ExponentialLR
//   "cosine", "linear", "polynomial"  fall over the remaining steps and would reach lr_min one step after the last:
//                  torch's CosineAnnealingLR, LinearLR and PolynomialLR (with `power`) over that number of steps
//   "onecycle"     Smith & Topin (2018), as torch's OneCycleLR: cosine from lr / 25 up to lr, then down to lr / 250000
//                  at the last step; the rise takes warmup_steps, or 30 % of the steps if that is 0
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
  std::int64_t decay_every = 0;  // "step": 0 selects decay_steps
  double decay = 0.1;
  double power = 1;

  [[nodiscard]] double at(std::int64_t step, int falls = 0) const;
};

}  // namespace sluice::optim
