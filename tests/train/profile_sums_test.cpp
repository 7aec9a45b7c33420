// What a profile says of steps whose parts are given, by hand.
#include "train/study/profile_sums.h"

#include <gtest/gtest.h>

namespace sluice::train {
namespace {

using profiler::Part;

constexpr double kRounding = 1e-12;

// Milliseconds that two devices compute, of a step of as many as the first with a millisecond of loading.
TrialStep step_of(int first, int second, std::int64_t samples = 8) {
  TrialStep step;
  step.stats.samples = samples;
  step.breakdown.step = Nanoseconds{first + 1} * 1'000'000;
  for (const int computes : {first, second}) {
    profiler::SlotBreakdown& slot = step.breakdown.slots.emplace_back();
    slot[Part::kForward] = Nanoseconds{computes} * 400'000;
    slot[Part::kBackward] = Nanoseconds{computes} * 500'000;
    slot[Part::kWeightGradient] = Nanoseconds{computes} * 100'000;
    slot[Part::kLoad] = 1'000'000;
  }
  return step;
}

TEST(ProfileSums, AStepIsTheMedian) {
  const profiler::StepSummary summary = summary_of({step_of(100, 60), step_of(130, 50), step_of(110, 40)});
  EXPECT_EQ(summary.steps, 3);
  EXPECT_NEAR(summary.median_s, 111e-3, kRounding);
  EXPECT_NEAR(summary.median_without_load_s, 110e-3, kRounding);
  EXPECT_NEAR(summary.fastest_s, 101e-3, kRounding);
  EXPECT_NEAR(summary.samples_per_s, 8 / 111e-3, 1e-9);
  EXPECT_NEAR(summary.compute_s, 80e-3, kRounding) << "of 80, 90 and 75, the means of the devices";
}

// Of the first device 100, 110, 120, 130 and 300 ms: the median is 120, and the distances to it 20, 10, 0, 10, 180.
TEST(ProfileSums, TheDeviationOfComputingIsAShareOfIt) {
  std::vector<TrialStep> trial;
  for (const int first : {100, 300, 110, 130, 120}) trial.push_back(step_of(first, 200));
  const double of_first = 1.4826 * 10 / 120, of_second = 0;
  EXPECT_NEAR(summary_of(trial).compute_deviation, (of_first + of_second) / 2, kRounding);
  // Twice as slow a machine is as steady.
  for (TrialStep& step : trial)
    for (profiler::SlotBreakdown& slot : step.breakdown.slots)
      for (Nanoseconds& part : slot.parts) part *= 2;
  EXPECT_NEAR(summary_of(trial).compute_deviation, of_first / 2, kRounding);
}

TEST(ProfileSums, ShortStepsAreLeftOut) {
  const std::vector<TrialStep> whole = whole_steps({step_of(1, 1, 8), step_of(2, 2, 3), step_of(3, 3, 8)});
  ASSERT_EQ(whole.size(), 2U);
  EXPECT_EQ(whole[1].breakdown.step, 4'000'000);
}

TEST(ProfileSums, TheLargestSizesAreThoseOfAStageAndOfABucket) {
  std::vector<profiler::MeasuredLayer> layers(3);
  for (profiler::MeasuredLayer& layer : layers) layer.cost = {.parameter_bytes = 5000, .gradient_bytes = 1000};
  layers[1].cost.gradient_bytes = 4000;
  EXPECT_EQ(trained_bytes_of_stage(layers, 1), 6000);
  EXPECT_EQ(trained_bytes_of_stage(layers, 2), 3000);
  EXPECT_EQ(largest_bucket(3 << 20, 25), 3 << 20);
  EXPECT_EQ(largest_bucket(30 << 20, 25), 25 << 20);
  EXPECT_EQ(largest_bucket(30 << 20, 0.5), 1 << 19);
}

}  // namespace
}  // namespace sluice::train
