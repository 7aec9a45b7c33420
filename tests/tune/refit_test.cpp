#include "tune/refit.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sluice::tune {
namespace {

Candidate candidate(int devices, int replicas, double seconds) {
  Candidate one;
  one.plan.partition.layers_per_stage.assign(devices, 1);
  one.plan.replicas = replicas;
  one.step.seconds = seconds;
  return one;
}

TEST(Refit, WithoutRunsPredictionsStand) { EXPECT_EQ(Refit().seconds(candidate(2, 1, 3)), 3); }

TEST(Refit, APlanOfTheSameDevicesAndReplicasDecides) {
  Refit refit;
  refit.add(candidate(2, 1, 1.0), 1.25);
  refit.add(candidate(1, 2, 1.0), 0.8);
  EXPECT_NEAR(refit.seconds(candidate(2, 1, 4)), 5, 1e-12);
  EXPECT_NEAR(refit.seconds(candidate(1, 2, 4)), 3.2, 1e-12);
  EXPECT_NEAR(refit.seconds(candidate(1, 1, 4)), 4, 1e-12) << "1.25 and 0.8 take each other back";
}

TEST(Refit, SeveralRunsCountAsTheirGeometricMean) {
  Refit refit;
  refit.add(candidate(2, 1, 1), 2);
  refit.add(candidate(2, 1, 3), 24);
  EXPECT_NEAR(refit.factor(candidate(2, 1, 1).plan), 4, 1e-12);
}

}  // namespace
}  // namespace sluice::tune
