#include "train/study/profile_sums.h"

#include <algorithm>

#include "core/clock.h"
#include "core/median.h"

namespace sluice::train {
namespace {

double compute_of(const profiler::SlotBreakdown& slot) { return to_s(slot.forward() + slot.backward()); }

double compute_deviation(const std::vector<TrialStep>& trial) {
  const std::size_t slots = trial.front().breakdown.slots.size();
  double sum = 0;
  for (std::size_t slot = 0; slot < slots; ++slot) {
    std::vector<double> seconds;
    for (const TrialStep& step : trial) seconds.push_back(compute_of(step.breakdown.slots[slot]));
    if (median(seconds) > 0) sum += median_deviation(seconds) / median(seconds);
  }
  return slots > 0 ? sum / static_cast<double>(slots) : 0;
}

}  // namespace

std::vector<TrialStep> whole_steps(std::vector<TrialStep> trial) {
  std::int64_t most = 0;
  for (const TrialStep& step : trial) most = std::max(most, step.stats.samples);
  std::erase_if(trial, [most](const TrialStep& step) { return step.stats.samples < most; });
  return trial;
}

profiler::StepSummary summary_of(const std::vector<TrialStep>& trial) {
  std::vector<double> seconds, without_load, computes;
  for (const TrialStep& step : trial) {
    seconds.push_back(to_s(step.breakdown.step));
    without_load.push_back(to_s(step.breakdown.step - step.breakdown.mean().load()));
    computes.push_back(compute_of(step.breakdown.mean()));
  }
  const double middle = median(seconds);
  return {.steps = static_cast<int>(seconds.size()),
          .median_s = middle,
          .median_without_load_s = median(without_load),
          .fastest_s = *std::ranges::min_element(seconds),
          .samples_per_s = static_cast<double>(trial.front().stats.samples) / middle,
          .compute_s = median(computes),
          .compute_deviation = compute_deviation(trial)};
}

std::uint64_t trained_bytes_of_stage(const std::vector<profiler::MeasuredLayer>& layers, int stages) {
  std::uint64_t bytes = 0;
  for (const profiler::MeasuredLayer& layer : layers) bytes += layer.cost.gradient_bytes;
  return bytes / static_cast<std::uint64_t>(stages);
}

std::uint64_t largest_bucket(std::uint64_t gradient_bytes, double bucket_mib) {
  return std::min(gradient_bytes, static_cast<std::uint64_t>(bucket_mib * 1024 * 1024));
}

}  // namespace sluice::train
