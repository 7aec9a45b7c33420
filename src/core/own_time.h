// own_time: how long something has taken, without the time in which the whole process was stopped (Ctrl-Z, SIGSTOP, a
// debugger, a suspended machine). Such a pause shows as one step between two looks at the clock that is far too long.
// Threads: one. Units: nanoseconds of the steady clock.
#pragma once

#include <algorithm>
#include <chrono>

namespace sluice {

class OwnTime {
 public:
  // Requires: while the process runs, pass() is called more often than every `longest_step`; a longer step counts as
  // one.
  explicit OwnTime(std::chrono::nanoseconds longest_step) : longest_step_(longest_step) {}

  // The time since construction, without pauses.
  std::chrono::nanoseconds pass() {
    const auto now = std::chrono::steady_clock::now();
    const std::chrono::nanoseconds step = now - last_;
    last_ = now;
    passed_ += std::min(step, longest_step_);
    paused_ += step - std::min(step, longest_step_);
    return passed_;
  }

  // The time that was left out.
  [[nodiscard]] std::chrono::nanoseconds paused() const { return paused_; }

 private:
  std::chrono::nanoseconds longest_step_;
  std::chrono::nanoseconds passed_{0};
  std::chrono::nanoseconds paused_{0};
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace sluice
