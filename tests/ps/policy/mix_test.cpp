// The numbers of a merge beside the published ones, each computed here as its paper or program writes it.
#include "ps/policy/mix.h"

#include <gtest/gtest.h>

namespace sluice::ps {
namespace {

// A weight, or a sum of gradients, is one number here: pushed[i] of record i.
double merged(const SyncPolicy& policy, double weights, const std::vector<PushRecord>& records,
              const std::vector<double>& pushed) {
  for (const Mix& mix : mixes_of(policy, records)) {
    double sum = mix.keep * weights;
    for (const MixPart& part : mix.parts) sum += part.take * pushed[part.push];
    weights = sum / mix.divisor;
  }
  return weights;
}

PushRecord of(std::int64_t examples, double factor = 1, std::int64_t steps = 0) {
  return {.examples = examples, .targets = examples, .local_steps = steps, .factor = factor};
}

const std::vector<PushRecord> kThree{of(1, 0.7619, 3), of(7, 1, 2), of(64, 0.9047, 5)};
const std::vector<double> kPushed{0.3, -2.5, 11.25};

TEST(Mix, GradientsAreDividedByAllTheirTargets) {
  EXPECT_EQ(merged({}, 99, kThree, kPushed), (0.3 - 2.5 + 11.25) / 72) << "in this order, with one division";
}

TEST(Mix, GradientsMayWeighTheSameWhateverTheirTargets) {
  EXPECT_NEAR(merged({.weigh = Weigh::kUniform}, 99, kThree, kPushed), (0.3 / 1 + -2.5 / 7 + 11.25 / 64) / 3, 1e-15);
}

TEST(Mix, AsynchronousDualBatchSizesAsInCompsac2022) {
  const SyncPolicy policy = preset_policy("dual_batch", 3);
  double weights = 1.5;
  for (std::size_t i = 0; i < 3; ++i) {
    const double f = kThree[i].factor;
    weights = ((2 - f) * weights + f * kPushed[i]) / 2;
  }
  EXPECT_EQ(merged(policy, 1.5, kThree, kPushed), weights);
}

TEST(Mix, AsynchronousDualBatchSizesAsInTheirJournal) {
  SyncPolicy policy = preset_policy("dual_batch", 3);
  policy.merge = Merge::kBesides;
  double weights = 1.5;
  for (std::size_t i = 0; i < 3; ++i) {
    const double f = kThree[i].factor;
    weights = (weights + f * kPushed[i]) / (1 + f);
  }
  EXPECT_EQ(merged(policy, 1.5, kThree, kPushed), weights);
}

TEST(Mix, SynchronousDualBatchSizes) {
  SyncPolicy policy = preset_policy("dual_batch", 3);
  policy.merge = Merge::kMean;
  const double sum = 0.7619 * 0.3 + 1 * -2.5 + 0.9047 * 11.25;
  EXPECT_NEAR(merged(policy, 1.5, kThree, kPushed), sum / (0.7619 + 1 + 0.9047), 1e-15);
}

TEST(Mix, DeltasByTargetsSquaredPerStep) {
  const SyncPolicy policy = preset_policy("diloco", 3);
  const double a = 1.0 * 1 / 3, b = 7.0 * 7 / 2, c = 64.0 * 64 / 5;
  EXPECT_NEAR(merged(policy, 99, kThree, kPushed), (a * 0.3 + b * -2.5 + c * 11.25) / (a + b + c), 1e-13);
}

TEST(Mix, LocalStepsAreAveragedByExamples) {
  EXPECT_NEAR(merged(preset_policy("local_sgd", 3), 99, kThree, kPushed), (0.3 - 7 * 2.5 + 64 * 11.25) / 72, 1e-13);
}

TEST(Mix, WhoHasTrainedOnNothingCountsForNothing) {
  const std::vector<PushRecord> records{of(0, 0.5, 1), of(7, 0.5, 1)};
  for (const std::string& name : policy_names()) {
    const auto mixes = mixes_of(preset_policy(name, 2), records);
    ASSERT_EQ(mixes.size(), 1U) << name;
    ASSERT_EQ(mixes[0].parts.size(), 1U) << name;
    EXPECT_EQ(mixes[0].parts[0].push, 1U) << name;
    EXPECT_TRUE(mixes_of(preset_policy(name, 1), {of(0, 0.5, 1)}).empty()) << name;
  }
}

}  // namespace
}  // namespace sluice::ps
