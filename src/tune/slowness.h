// slowness: detects that something has become slower and stays slower, and when that ends. Single slow steps, and other
// programs' bursts of a few seconds, are no change. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace sluice::tune {

class Slowness {
 public:
  static constexpr double kFactor = 1.3;            // a step is slow from this multiple of the normal time on
  static constexpr double kSeconds = 3;             // a change is reported once its steps have lasted this long
  static constexpr std::int64_t kSteps = 5;         // least steps: each counts for at most kSeconds / kSteps
  static constexpr double kLeastShare = 0.8;        // of the steps since the change began, those that show it
  static constexpr std::int64_t kWarmUpSteps = 20;  // their median is the first normal time

  struct Change {
    double factor = 1;            // now_s / before_s
    std::int64_t since_step = 0;  // the first step of the change
    double before_s = 0, now_s = 0;
  };

  // seconds: what is watched, above 0. step_s: the whole step. Returns a change in the step that confirms it.
  std::optional<Change> add(std::int64_t step, double seconds, double step_s);

  // From now on times for the same speed are `ratio` times as long and `more_s` longer.
  void rescale(double ratio, double more_s = 0) {
    normal_s_ = normal_s_ * ratio + more_s;
    candidate_.clear();
  }

  [[nodiscard]] bool is_slow() const { return is_slow_; }
  [[nodiscard]] bool may_change() const { return candidate_.size() >= 3; }
  [[nodiscard]] double normal_s() const { return normal_s_; }  // 0: not known yet

 private:
  [[nodiscard]] bool is_changed(double seconds) const;
  void extend_candidate(std::int64_t step, double seconds, double step_s);
  [[nodiscard]] std::optional<Change> confirmed();

  std::vector<double> first_;  // the first kWarmUpSteps
  double normal_s_ = 0;
  bool is_slow_ = false;
  // The change that may be coming: slow steps, or normal ones while it is slow.
  std::vector<double> candidate_;
  std::int64_t changed_steps_ = 0;  // of the candidate
  std::int64_t since_step_ = 0;
  double lasted_s_ = 0;
};

}  // namespace sluice::tune
