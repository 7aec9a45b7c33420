// sync_timing: which process was ready last for a bucket's sum, and when, told in this process's own time: waiting
// until then is skew, the rest is transfer. Clocks of different machines start anywhere. A sum ends at nearly the same
// moment in all processes, so the difference of two clocks is the median, over many sums, of the differences between
// the ends they read. What is left of that is the time by which one process regularly sees a sum's end later than
// another. Threads: one. Pure but for the memory of past sums.
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
  std::vector<Nanoseconds> all_there;  // [sum]: when all processes were ready, within one's own begin and end
  LateProcess late;                    // by the last sum that each process began
};

class SyncTiming {
 public:
  // own: rank of this process.
  SyncTiming(int own, int processes) : own_(own), differences_(processes) {}

  // of_process: [process][sum], of one step.
  [[nodiscard]] Readiness readiness(std::span<const std::vector<SumTimes>> of_process);

 private:
  void remember(int process, std::span<const SumTimes> theirs, std::span<const SumTimes> ours);
  [[nodiscard]] Nanoseconds clock_difference(int process) const;  // 0 for our own

  static constexpr std::size_t kRemembered = 101;  // sums; their median moves with clocks that drift

  int own_;
  std::vector<std::deque<Nanoseconds>> differences_;  // [process]: its clock minus ours
};

}  // namespace sluice::ddp
