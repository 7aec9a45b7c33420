#include "ddp/sync_timing.h"

#include <algorithm>

#include "core/median.h"

namespace sluice::ddp {

void SyncTiming::remember(int process, std::span<const SumTimes> theirs, std::span<const SumTimes> ours) {
  auto& differences = differences_[process];
  for (std::size_t i = 0; i < ours.size(); ++i) differences.push_back(theirs[i].end - ours[i].end);
  while (differences.size() > kRemembered) differences.pop_front();
}

Nanoseconds SyncTiming::clock_difference(int process) const {
  return upper_median(std::vector<Nanoseconds>(differences_[process].begin(), differences_[process].end()));
}

Readiness SyncTiming::readiness(std::span<const std::vector<SumTimes>> of_process) {
  const std::vector<SumTimes>& ours = of_process[own_];
  Readiness result;
  if (ours.empty()) return result;
  for (const SumTimes& sum : ours) result.all_there.push_back(sum.begin);
  Nanoseconds first = 0, last = 0;  // earliest and latest begin of a process's last sum
  for (int process = 0; process < static_cast<int>(of_process.size()); ++process) {
    const std::vector<SumTimes>& theirs = of_process[process];
    remember(process, theirs, ours);
    const Nanoseconds difference = clock_difference(process);
    Nanoseconds own_last = theirs.front().begin - difference;
    for (std::size_t i = 0; i < ours.size(); ++i) {
      const Nanoseconds begin = theirs[i].begin - difference;
      result.all_there[i] = std::max(result.all_there[i], begin);
      own_last = std::max(own_last, begin);
    }
    if (process == 0 || own_last < first) first = own_last;
    if (process == 0 || own_last > last) {
      last = own_last;
      result.late.rank = process;
    }
  }
  result.late.wait = last - first;
  for (std::size_t i = 0; i < ours.size(); ++i)
    result.all_there[i] = std::min(result.all_there[i], std::max(ours[i].begin, ours[i].end));
  return result;
}

}  // namespace sluice::ddp
