// own_time: elapsed time without pauses of the whole process (Ctrl-Z, a debugger, a suspended machine), so that a pause
// does not trigger timeouts. A pause shows as an unusually long step between two clock readings.
// Threads: one per OwnTime. Units: nanoseconds of the steady clock.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <thread>

namespace sluice {

inline constexpr std::chrono::milliseconds kShortWait{200};

class OwnTime {
 public:
  using Clock = std::chrono::steady_clock;

  // An interval between two calls of pass() counts at most `longest_step`; while the process runs it is shorter.
  explicit OwnTime(std::chrono::nanoseconds longest_step, Clock::time_point start = Clock::now())
      : longest_step_(longest_step), last_(start) {}

  std::chrono::nanoseconds pass(Clock::time_point now = Clock::now()) {
    const std::chrono::nanoseconds step = now - last_;
    last_ = now;
    passed_ += std::min(step, longest_step_);
    paused_ += step - std::min(step, longest_step_);
    return passed_;
  }

  // Like pass(), but excludes the whole interval since the last reading.
  std::chrono::nanoseconds leave_out(Clock::time_point now = Clock::now()) {
    paused_ += now - last_;
    last_ = now;
    return passed_;
  }

  [[nodiscard]] std::chrono::nanoseconds paused() const { return paused_; }

 private:
  std::chrono::nanoseconds longest_step_;
  std::chrono::nanoseconds passed_{0};
  std::chrono::nanoseconds paused_{0};
  Clock::time_point last_;
};

// Own time as a clock, for code with several limits. Requires: a reading at least every kReadEvery while a limit runs.
// An interval between two readings counts as at most one second. One thread per OwnClock.
class OwnClock {
 public:
  static constexpr std::chrono::milliseconds kReadEvery{500};

  [[nodiscard]] std::int64_t now() const { return time_.pass().count(); }

 private:
  static constexpr std::chrono::seconds kLongestStep{1};
  mutable OwnTime time_{kLongestStep};
};

// A time limit shared by several waits.
class OwnLimit {
 public:
  explicit OwnLimit(std::chrono::nanoseconds limit, std::chrono::nanoseconds longest_step = 2 * kShortWait)
      : limit_(limit), time_(longest_step) {}

  [[nodiscard]] std::chrono::nanoseconds left() { return std::max(limit_ - time_.pass(), std::chrono::nanoseconds{0}); }

  // Calls try_once() at least once, with pauses between, until it is true or the limit is over.
  template <typename Try>
  bool retry(std::chrono::milliseconds pause, const Try& try_once) {
    while (!try_once()) {
      if (left().count() == 0) return false;
      std::this_thread::sleep_for(pause);
    }
    return true;
  }

 private:
  std::chrono::nanoseconds limit_;
  OwnTime time_;
};

// Like changed.wait_for(lock, limit, predicate), in own time, without intervals during which `is_excused` holds: it is
// called a few times a second with the lock held, for the interval since the last call.
template <typename Condition, typename Predicate, typename Excused>
bool wait_own_time(Condition& changed, std::unique_lock<std::mutex>& lock, std::chrono::nanoseconds limit,
                   const Predicate& predicate, const Excused& is_excused) {
  OwnTime time(2 * kShortWait);
  std::chrono::nanoseconds left = limit;
  while (left.count() > 0) {
    if (changed.wait_for(lock, std::min<std::chrono::nanoseconds>(left, kShortWait), predicate)) return true;
    left = limit - (is_excused() ? time.leave_out() : time.pass());
  }
  return predicate();
}

template <typename Condition, typename Predicate>
bool wait_own_time(Condition& changed, std::unique_lock<std::mutex>& lock, std::chrono::nanoseconds limit,
                   const Predicate& predicate) {
  return wait_own_time(changed, lock, limit, predicate, [] { return false; });
}

}  // namespace sluice
