#include "ddp/sync_timing.h"

#include <algorithm>

namespace sluice::ddp {

void SyncTiming::remember(int process, std::span<const SumTimes> theirs, std::span<const SumTimes> ours) {
  auto& differences = differences_[process];
  for (std::size_t i = 0; i < ours.size(); ++i) differences.push_back(theirs[i].end - ours[i].end);
  while (differences.size() > kRemembered) differences.pop_front();
}

Nanoseconds SyncTiming::clock_difference(int process) const {
  std::vector<Nanoseconds> sorted(differences_[process].begin(), differences_[process].end());
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

std::vector<Readiness> SyncTiming::readiness(std::span<const std::vector<SumTimes>> of_process) {
  const std::vector<SumTimes>& ours = of_process[own_];
  std::vector<Readiness> result;
  std::vector<Nanoseconds> first;
  for (const SumTimes& sum : ours) {
    result.push_back({.all_there = sum.begin, .last = own_});
    first.push_back(sum.begin);
  }
  for (int process = 0; process < static_cast<int>(of_process.size()) && !ours.empty(); ++process) {
    remember(process, of_process[process], ours);
    const Nanoseconds difference = clock_difference(process);
    for (std::size_t i = 0; i < ours.size(); ++i) {
      const Nanoseconds begin = of_process[process][i].begin - difference;
      first[i] = std::min(first[i], begin);
      if (begin <= result[i].all_there) continue;
      result[i].all_there = begin;
      result[i].last = process;
    }
  }
  for (std::size_t i = 0; i < ours.size(); ++i) {
    result[i].wait = result[i].all_there - first[i];
    result[i].all_there = std::min(result[i].all_there, std::max(ours[i].begin, ours[i].end));
  }
  return result;
}

}  // namespace sluice::ddp
