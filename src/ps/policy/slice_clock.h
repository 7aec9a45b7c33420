// slice_clock: the time of one step of a worker, and the rule of anytime mini-batches: no slice but the first begins
// once the stall and the earlier slices have reached the deadline. Times are whole nanoseconds. Threads: one.
#pragma once

#include <cstdint>

#include "core/clock.h"

namespace sluice::ps {

struct WorkerCosts {
  double sample_s = 0;
  double step_s = 0;
  double bytes_per_s = 0;  // between worker and server, each way; 0: sending takes no time
};

class SliceClock {
 public:
  SliceClock(const WorkerCosts& costs, double stall_s, double deadline_s)
      : costs_(costs), stall_(from_s(stall_s)), deadline_(from_s(deadline_s)) {}

  // Returns true, and adds the slice's time, if a slice of that many samples runs. Call in the order of the slices.
  [[nodiscard]] bool admits(std::int64_t samples) {
    if (deadline_ > 0 && has_begun_ && compute_time() >= deadline_) return false;
    has_begun_ = true;
    worked_ += from_s(costs_.step_s + static_cast<double>(samples) * costs_.sample_s);
    return true;
  }
  [[nodiscard]] Nanoseconds compute_time() const { return stall_ + worked_; }
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
