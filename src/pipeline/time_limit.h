// time_limit: how long repeated work may take before it counts as hung. Values; one thread at a time.
#pragma once

#include <algorithm>
#include <chrono>

namespace sluice::pipeline {

class TimeLimit {
 public:
  // A machine may be up to 20 times slower for a while.
  static constexpr int kFactor = 20;
  static constexpr std::chrono::milliseconds kLeast{60'000};
  static constexpr std::chrono::milliseconds kFirst{3'600'000};  // before the first measurement

  // fixed: the limit; 0: kFactor times the longest measured time, at least kLeast.
  explicit TimeLimit(std::chrono::milliseconds fixed) : fixed_(fixed) {}

  [[nodiscard]] std::chrono::milliseconds current() const {
    if (fixed_.count() > 0) return fixed_;
    if (longest_.count() == 0) return kFirst;
    return std::max(kLeast, std::chrono::duration_cast<std::chrono::milliseconds>(kFactor * longest_));
  }
  void add(std::chrono::nanoseconds took) { longest_ = std::max(longest_, took); }

 private:
  std::chrono::milliseconds fixed_;
  std::chrono::nanoseconds longest_{0};
};

// The limits of a run's passes. They outlive a change of plan, so that earlier measurements limit the first pass of the
// new plan. fixed: as in TimeLimit.
struct PassLimits {
  explicit PassLimits(std::chrono::milliseconds fixed) : training(fixed), forward(fixed) {}

  TimeLimit training;  // passes with backward, and jobs between passes
  TimeLimit forward;   // passes without backward
};

}  // namespace sluice::pipeline
