// What a run remembers of its gradient noise scale, from step to step and over a checkpoint.
#include "train/setup/noise_watch.h"
#include "train/setup/run_state.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace sluice::train {
namespace {

// Two parts of the parameters; numbers that are in no file exactly.
StepStats stats_of(int step) {
  const double wave = 0.1 * std::sin(step);
  return {.norms = GradientNorms{.parts = {{4, 3.0 / 7 + wave, 12, 1.0 / 7}, {3, 1.1 + wave, 12, 0.7 - wave / 3}},
                                 .duration = 5}};
}

TEST(NoiseWatch, DisjointPartsOfAStepAddUp) {
  const auto estimate = noise_estimate({.norms = GradientNorms{.parts = {{2, 10, 4, 7}, {1, 9, 4, 6}}}});
  ASSERT_TRUE(estimate);
  EXPECT_DOUBLE_EQ(estimate->trace, (10 - 7) / (1.0 / 2 - 1.0 / 4) + (9 - 6) / (1.0 - 1.0 / 4));
  EXPECT_DOUBLE_EQ(estimate->squared_norm, (4 * 7 - 2 * 10) / 2.0 + (4 * 6 - 9) / 3.0);
}

TEST(NoiseWatch, AStepWithoutNormsOrWithInfiniteOnesChangesNothing) {
  tune::NoiseAverage::State mean;
  EXPECT_FALSE(take_in(mean, {}, 1));
  StepStats infinite = stats_of(1);
  infinite.norms->parts[1].big_squares = std::numeric_limits<double>::infinity();
  EXPECT_FALSE(take_in(mean, infinite, 1));
  EXPECT_EQ(mean.estimates, 0);
  EXPECT_TRUE(take_in(mean, stats_of(1), 1));
  EXPECT_EQ(mean.estimates, 1);
}

TEST(NoiseWatch, GoesOnBitForBitFromTheTextOfACheckpoint) {
  RunState whole{.plan = {.partition = {{1}}}};
  tune::NoiseAverage::State& mean = whole.progress.noise;
  EXPECT_FALSE(whole.to_json().contains("noise_scale"));
  for (int step = 0; step < 25; ++step) ASSERT_TRUE(take_in(mean, stats_of(step), 3));
  RunState resumed = RunState::from_json(nlohmann::json::parse(whole.to_json().dump()), "a checkpoint");
  for (int step = 25; step < 40; ++step) {
    const auto ours = take_in(resumed.progress.noise, stats_of(step), 3), theirs = take_in(mean, stats_of(step), 3);
    ASSERT_TRUE(ours && theirs && ours->mean && theirs->mean);
    EXPECT_EQ(ours->mean->samples, theirs->mean->samples);
    EXPECT_EQ(ours->mean->error, theirs->mean->error);
    EXPECT_EQ(ours->mean->trace_error, theirs->mean->trace_error);
    EXPECT_EQ(ours->mean->squared_norm_error, theirs->mean->squared_norm_error);
  }
}

// One that stands for three steps weighs as AdaptDL's of three times the batch: its memory is a third as many.
TEST(NoiseWatch, AnEstimateStandsForTheStepsSinceTheOneBefore) {
  tune::NoiseAverage::State mean;
  static_cast<void>(take_in(mean, stats_of(0), 3));
  EXPECT_DOUBLE_EQ(mean.weight, 1 - std::pow(0.999, 3));
  EXPECT_FALSE(noise_is_due(3, 0));
  EXPECT_TRUE(noise_is_due(6, 3));
  EXPECT_FALSE(noise_is_due(7, 3));
}

}  // namespace
}  // namespace sluice::train
