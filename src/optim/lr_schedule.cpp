#include "optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/check.h"

namespace sluice::optim {
namespace {

double cosine_between(double begin, double end, double progress) {
  return end + (begin - end) * 0.5 * (1.0 + std::cos(std::numbers::pi * std::clamp(progress, 0.0, 1.0)));
}

double one_cycle(const LrSchedule& schedule, std::int64_t step) {
  constexpr double kStartFraction = 25.0;  // torch's div_factor
  constexpr double kEndFraction = 1e4;     // torch's final_div_factor
  constexpr double kRise = 0.3;            // torch's pct_start
  const auto total = static_cast<double>(schedule.total_steps);
  const double rise = (schedule.warmup_steps > 0 ? static_cast<double>(schedule.warmup_steps) : kRise * total) - 1.0;
  const double start = schedule.lr / kStartFraction;
  const auto now = static_cast<double>(step);
  if (now <= rise) return cosine_between(start, schedule.lr, rise > 0 ? now / rise : 1.0);
  return cosine_between(schedule.lr, start / kEndFraction, (now - rise) / std::max(total - 1.0 - rise, 1.0));
}

std::int64_t count_decays(const LrSchedule& schedule, std::int64_t step) {
  if (schedule.decay_every > 0) return step / schedule.decay_every;
  return std::ranges::count_if(schedule.decay_steps, [&](auto at) { return at <= step; });
}

double on_plateau(const LrSchedule& schedule, int falls) {
  return std::max(schedule.lr * std::pow(schedule.decay, falls), schedule.lr_min);
}

double after_warmup(const LrSchedule& schedule, std::int64_t step, int falls) {
  if (schedule.kind == "constant") return schedule.lr;
  if (schedule.kind == "plateau") return on_plateau(schedule, falls);
  if (schedule.kind == "step")
    return schedule.lr * std::pow(schedule.decay, static_cast<double>(count_decays(schedule, step)));
  if (schedule.kind == "exponential")
    return schedule.lr *
           std::pow(schedule.decay, static_cast<double>(step) / static_cast<double>(schedule.decay_every));
  const auto length = static_cast<double>(std::max<std::int64_t>(schedule.total_steps - schedule.warmup_steps, 1));
  const double progress = static_cast<double>(step - schedule.warmup_steps) / length;
  if (schedule.kind == "cosine") return cosine_between(schedule.lr, schedule.lr_min, progress);
  const bool is_linear = schedule.kind == "linear";
  check(is_linear || schedule.kind == "polynomial", "a known learning-rate schedule");
  const double left = std::pow(std::max(1 - progress, 0.0), is_linear ? 1 : schedule.power);
  return schedule.lr_min + (schedule.lr - schedule.lr_min) * left;
}

}  // namespace

double LrSchedule::at(std::int64_t step, int falls) const {
  if (kind == "onecycle") return one_cycle(*this, step);
  if (step < warmup_steps) return lr * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  return after_warmup(*this, step, falls);
}

}  // namespace sluice::optim
