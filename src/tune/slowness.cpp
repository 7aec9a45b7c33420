#include "tune/slowness.h"

#include <algorithm>

#include "core/median.h"

namespace sluice::tune {
namespace {

// Weight of one step in the running mean of the normal time, which follows much faster steps sooner: the first ones may
// have been slow.
constexpr double kWeight = 0.005, kWeightOfFaster = 0.05, kFaster = 0.8;

}  // namespace

bool Slowness::is_changed(double seconds) const { return (seconds >= kFactor * normal_s_) != is_slow_; }

std::optional<Slowness::Change> Slowness::add(std::int64_t step, double seconds, double step_s) {
  if (normal_s_ == 0) {
    first_.push_back(seconds);
    if (std::ssize(first_) == kWarmUpSteps) normal_s_ = median(first_);
    return std::nullopt;
  }
  const bool is_changed_step = is_changed(seconds);
  if (!candidate_.empty() || is_changed_step) extend_candidate(step, seconds, step_s);
  const double weight = seconds < kFaster * normal_s_ ? kWeightOfFaster : kWeight;
  if (!is_slow_ && !is_changed_step) normal_s_ += weight * (seconds - normal_s_);
  return is_changed_step ? confirmed() : std::nullopt;
}

void Slowness::extend_candidate(std::int64_t step, double seconds, double step_s) {
  if (candidate_.empty()) since_step_ = step, lasted_s_ = 0, changed_steps_ = 0;
  candidate_.push_back(seconds);
  const bool is_changed_step = is_changed(seconds);
  if (is_changed_step) ++changed_steps_, lasted_s_ += std::min(step_s, kSeconds / kSteps);
  const double share = static_cast<double>(changed_steps_) / static_cast<double>(candidate_.size());
  if (share < kLeastShare) candidate_.clear();
}

std::optional<Slowness::Change> Slowness::confirmed() {
  if (changed_steps_ < kSteps || lasted_s_ < kSeconds) return std::nullopt;
  const double now_s = median(candidate_);
  is_slow_ = !is_slow_;
  candidate_.clear();
  return Change{.factor = now_s / normal_s_, .since_step = since_step_, .before_s = normal_s_, .now_s = now_s};
}

}  // namespace sluice::tune
