// Against the published sizes of Lu et al., and against the condition that they follow from.
#include "ps/policy/batch_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/error.h"

namespace sluice::ps {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

BatchPlanRequest worked_case(int workers, int small) {
  return {.workers = workers,
          .small_workers = small,
          .base_batch = 1000,
          .samples = 50'000,
          .extra_time = Rational::parse("1.05", "k"),
          .a = Rational::parse("0.00022595", "a"),
          .b = Rational::parse("0.006233854698278141", "b"),
          .allows_tiny = true};
}

// Their notes have the sizes of 2 to 5 of five small workers, rounded down from 165.75, 237.33, 297.86 and 349.37, and
// of 1 to 6 of six.
TEST(BatchPlan, GivesThePublishedSizes) {
  const std::int64_t batches[]{165, 237, 297, 349};
  const double factors[]{0.7619, 0.8810, 0.9206, 0.9405, 0.9524};
  for (int small = 2; small <= 5; ++small)
    EXPECT_EQ(plan_batches(worked_case(5, small)).small_batch, batches[small - 2]);
  for (int small = 1; small <= 5; ++small) {
    const BatchPlan plan = plan_batches(worked_case(5, small));
    EXPECT_NEAR(plan.factor, factors[small - 1], 5e-5) << small;
    EXPECT_EQ(plan.large_samples, small == 5 ? 0 : 10'500);
  }
  const std::int64_t batches_of_six[]{62, 138, 203, 258, 307, 349};
  const double of_six[]{0.7143, 0.8571, 0.9047, 0.9286, 0.9429, 0.9523};
  for (int small = 1; small <= 6; ++small) {
    const BatchPlan plan = plan_batches(worked_case(6, small));
    EXPECT_EQ(plan.small_batch, batches_of_six[small - 1]);
    EXPECT_NEAR(plan.factor, of_six[small - 1], 1e-4);
  }
}

// The small workers are done with the large ones, and one more sample a batch would make them faster still.
TEST(BatchPlan, LetsAllFinishTogether) {
  for (int workers = 2; workers <= 12; ++workers) {
    for (int small = 1; small < workers; ++small) {
      const BatchPlanRequest request = worked_case(workers, small);
      const BatchPlan plan = plan_batches(request);
      const double allowed = 1.05 * plan.base_seconds;
      const auto seconds = [&](std::int64_t batch) {
        return (0.00022595 + 0.006233854698278141 / static_cast<double>(batch)) *
               static_cast<double>(plan.small_samples);
      };
      EXPECT_GE(plan.small_seconds * (1 + 1e-12), allowed) << "rounded down, it takes a little longer";
      EXPECT_NEAR(plan.small_seconds, seconds(plan.small_batch), 1e-9);
      EXPECT_LE(seconds(plan.small_batch + 1), allowed * (1 + 1e-12));
      EXPECT_LE(plan.large_seconds, allowed * (1 + 1e-12));
      EXPECT_LE(plan.large_samples * (workers - small) + plan.small_samples * small, 50'000);
      EXPECT_GT(plan.large_samples * (workers - small) + (plan.small_samples + 1) * small, 50'000);
    }
  }
}

TEST(BatchPlan, WithoutSmallWorkersIsTheBase) {
  const BatchPlan plan = plan_batches(worked_case(5, 0));
  EXPECT_EQ(plan.small_batch, 0);
  EXPECT_EQ(plan.large_samples, 10'000);
  EXPECT_NEAR(plan.large_seconds, plan.base_seconds, 1e-12);
}

TEST(BatchPlan, RefusesWhatCannotBe) {
  const auto refusal = [](const BatchPlanRequest& request) { return [&request] { (void)plan_batches(request); }; };
  BatchPlanRequest request = worked_case(5, 6);
  EXPECT_THAT(refusal(request), ThrowsMessage<ConfigError>(HasSubstr("more than --workers 5")));
  request = worked_case(5, 1);
  request.allows_tiny = false;
  EXPECT_NO_THROW(refusal(request)());
  request.extra_time = Rational::parse("1.2", "k");
  EXPECT_THAT(refusal(request), ThrowsMessage<ConfigError>(HasSubstr("below 40")));
  request.extra_time = Rational::parse("1.25", "k");
  EXPECT_THAT(refusal(request), ThrowsMessage<ConfigError>(HasSubstr("the 4 large workers take all 50000 samples")));
  request.extra_time = Rational::parse("0.99", "k");
  EXPECT_THAT(refusal(request), ThrowsMessage<ConfigError>(HasSubstr("less than 1")));
  request = worked_case(5, 2);
  request.b = 0;
  EXPECT_THAT(refusal(request), ThrowsMessage<ConfigError>(HasSubstr("--b must be above 0")));
  request = worked_case(5, 2);
  request.samples = 4;
  EXPECT_THAT(refusal(request), ThrowsMessage<ConfigError>(HasSubstr("fewer than --workers")));
}

}  // namespace
}  // namespace sluice::ps
