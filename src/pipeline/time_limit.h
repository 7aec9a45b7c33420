// time_limit: how long work that is done again and again may take before it counts as hung.
// Values; one thread at a time.
#pragma once

#include <algorithm>
#include <chrono>

namespace sluice::pipeline {

class TimeLimit {
 public:
  // What has run for so long goes on: a machine may be twenty times slower for a while.
  static constexpr int kFactor = 20;
  static constexpr std::chrono::milliseconds kLeast{60'000};
  static constexpr std::chrono::milliseconds kFirst{3'600'000};  // nothing was measured yet

  // fixed: the limit; 0: kFactor times the longest time so far, at least kLeast.
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

// The limits of a run's passes. They outlive a change of plan, so that the first pass under the new one is held to
// what the run has measured. fixed: as TimeLimit has it.
struct PassLimits {
  explicit PassLimits(std::chrono::milliseconds fixed) : training(fixed), forward(fixed) {}

  TimeLimit training;  // of passes with backward, and of jobs between passes
  TimeLimit forward;   // of passes without
};

}  // namespace sluice::pipeline
