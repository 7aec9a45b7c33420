#include "ddp/sync_timing.h"

#include <algorithm>

namespace sluice::ddp {

Nanoseconds SyncTiming::clock_difference(int process) const {
  std::vector<Nanoseconds> sorted(differences_[process].begin(), differences_[process].end());
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

std::vector<Nanoseconds> SyncTiming::all_there(std::span<const std::vector<SumTimes>> of_process) {
  const std::vector<SumTimes>& ours = of_process[own_];
  std::vector<Nanoseconds> result;
  for (const SumTimes& sum : ours) result.push_back(sum.begin);
  for (int process = 0; process < static_cast<int>(of_process.size()); ++process) {
    if (process == own_ || ours.empty()) continue;
    const std::vector<SumTimes>& theirs = of_process[process];
    auto& differences = differences_[process];
    for (std::size_t i = 0; i < ours.size(); ++i) differences.push_back(theirs[i].end - ours[i].end);
    while (differences.size() > kRemembered) differences.pop_front();
    const Nanoseconds difference = clock_difference(process);
    for (std::size_t i = 0; i < ours.size(); ++i) result[i] = std::max(result[i], theirs[i].begin - difference);
  }
  for (std::size_t i = 0; i < ours.size(); ++i)
    result[i] = std::clamp(result[i], ours[i].begin, std::max(ours[i].begin, ours[i].end));
  return result;
}

}  // namespace sluice::ddp
