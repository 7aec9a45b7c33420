// sync_timing: finds which process was ready last for a bucket's sum, and when, in this process's time. Waiting until
// then is skew; the rest is transfer. A sum ends at nearly the same moment in all processes, so the difference of two
// clocks is the median, over many sums, of the differences between the recorded ends. Threads: one.
#pragma once

#include <deque>
#include <span>
#include <vector>

#include "core/clock.h"
#include "core/recorder.h"

namespace sluice::ddp {

// One process's sum of one bucket, by that process's clock.
struct SumTimes {
  Nanoseconds begin = 0;
  Nanoseconds end = 0;
};

struct Readiness {
  std::vector<Nanoseconds> all_there;  // [sum]: when all processes were ready, clamped to this process's begin and end
  LateProcess late;                    // the process whose last sum began last
};

class SyncTiming {
 public:
  SyncTiming(int own, int processes) : own_(own), differences_(processes) {}

  [[nodiscard]] Readiness readiness(std::span<const std::vector<SumTimes>> of_process);

 private:
  void remember(int process, std::span<const SumTimes> theirs, std::span<const SumTimes> ours);
  [[nodiscard]] Nanoseconds clock_difference(int process) const;

  static constexpr std::size_t kRemembered = 101;  // sums; a sliding median follows clocks that drift

  int own_;
  std::vector<std::deque<Nanoseconds>> differences_;  // [process]: its clock minus this process's clock
};

}  // namespace sluice::ddp
