// slice_clock: the time of one step of a worker, and the rule of anytime mini-batches: with a deadline no slice begins
// once the stall and the slices before it have taken that long; the first one always runs. In whole nanoseconds, so
// that a slice that ends at the deadline is known to. Threads: one. Errors: none.
#pragma once

#include <cstdint>

#include "core/clock.h"

namespace sluice::ps {

// What the work of a worker takes, in seconds.
struct WorkerCosts {
  double sample_s = 0;
  double step_s = 0;
  double bytes_per_s = 0;  // between it and the server, each way; 0: no time
};

// As far as it has computed. Slices are asked for in their order.
class SliceClock {
 public:
  // deadline_s: 0 where there is none.
  SliceClock(const WorkerCosts& costs, double stall_s, double deadline_s)
      : costs_(costs), stall_(from_s(stall_s)), deadline_(from_s(deadline_s)) {}

  // True when a slice of so many samples is run, and then it has been charged.
  [[nodiscard]] bool admits(std::int64_t samples) {
    if (deadline_ > 0 && has_begun_ && compute_time() >= deadline_) return false;
    has_begun_ = true;
    worked_ += from_s(costs_.step_s + static_cast<double>(samples) * costs_.sample_s);
    return true;
  }
  [[nodiscard]] Nanoseconds compute_time() const { return stall_ + worked_; }  // stalls included
  [[nodiscard]] double compute_s() const { return to_s(compute_time()); }
  [[nodiscard]] double stall_s() const { return to_s(stall_); }

 private:
  WorkerCosts costs_;
  Nanoseconds stall_;
  Nanoseconds deadline_;
  Nanoseconds worked_ = 0;
  bool has_begun_ = false;
};

}  // namespace sluice::ps
