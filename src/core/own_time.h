// own_time: how long something has taken, without the time in which the whole process was stopped (Ctrl-Z, SIGSTOP, a
// debugger, a suspended machine), so that nobody is blamed for it. Such a pause shows as one step between two looks at
// the clock that is far too long. Every wait that has a limit counts it so.
// Threads: one per OwnTime. Units: nanoseconds of the steady clock.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <thread>

namespace sluice {

// Between two looks at the clock, for waits that nothing else divides.
inline constexpr std::chrono::milliseconds kShortWait{200};

class OwnTime {
 public:
  using Clock = std::chrono::steady_clock;

  // Requires: while the process runs, pass() is called more often than every `longest_step`; a longer step counts as
  // one.
  explicit OwnTime(std::chrono::nanoseconds longest_step, Clock::time_point start = Clock::now())
      : longest_step_(longest_step), last_(start) {}

  // The time since construction, without pauses.
  std::chrono::nanoseconds pass(Clock::time_point now = Clock::now()) {
    const std::chrono::nanoseconds step = now - last_;
    last_ = now;
    passed_ += std::min(step, longest_step_);
    paused_ += step - std::min(step, longest_step_);
    return passed_;
  }

  // The same, but the time since the last look is left out whole.
  std::chrono::nanoseconds leave_out(Clock::time_point now = Clock::now()) {
    paused_ += now - last_;
    last_ = now;
    return passed_;
  }

  // The time that was left out.
  [[nodiscard]] std::chrono::nanoseconds paused() const { return paused_; }

 private:
  std::chrono::nanoseconds longest_step_;
  std::chrono::nanoseconds passed_{0};
  std::chrono::nanoseconds paused_{0};
  Clock::time_point last_;
};

// The same as a clock, for what has several limits. Requires: while one of them counts, it is read every kReadEvery. Of
// the time between two readings one second counts at most. Threads: one per OwnClock; now() is not safe to call from
// two.
class OwnClock {
 public:
  static constexpr std::chrono::milliseconds kReadEvery{500};

  // Nanoseconds since it was made.
  [[nodiscard]] std::int64_t now() const { return time_.pass().count(); }

 private:
  static constexpr std::chrono::seconds kLongestStep{1};
  mutable OwnTime time_{kLongestStep};
};

// What several waits may take together.
class OwnLimit {
 public:
  // longest_step: as OwnTime has it.
  explicit OwnLimit(std::chrono::nanoseconds limit, std::chrono::nanoseconds longest_step = 2 * kShortWait)
      : limit_(limit), time_(longest_step) {}

  [[nodiscard]] std::chrono::nanoseconds left() { return std::max(limit_ - time_.pass(), std::chrono::nanoseconds{0}); }

  // Calls try_once() until it returns true or the limit is over, at least once, with pauses between. What it returned
  // last.
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

// As changed.wait_for(lock, limit, predicate), in the process's own time, less the time in which `is_excused` holds.
// That is asked with the lock held, a few times a second, of the time since it was last asked.
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
