#include "tune/expected_maximum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "core/error.h"
#include "core/rng.h"

namespace sluice::tune {
namespace {

TEST(ExpectedMaximum, IsThatOfTheTablesOfOrderStatistics) {
  EXPECT_EQ(expected_maximum(1), 0);
  EXPECT_NEAR(expected_maximum(2), 1 / std::sqrt(std::numbers::pi), 1e-12);
  EXPECT_NEAR(expected_maximum(3), 1.5 / std::sqrt(std::numbers::pi), 1e-12);
  EXPECT_NEAR(expected_maximum(2), 0.5642, 5e-5);
  EXPECT_NEAR(expected_maximum(3), 0.8463, 5e-5);
  EXPECT_NEAR(expected_maximum(10), 1.5388, 5e-5);
  EXPECT_NEAR(expected_maximum(100), 2.5076, 5e-5);
  EXPECT_NEAR(expected_maximum(1000), 3.2414, 5e-5);
  EXPECT_THROW(static_cast<void>(expected_maximum(0)), BugError);
}

// Five deviations of the mean of so many rounds.
TEST(ExpectedMaximum, IsWhatMonteCarloFinds) {
  RngStream rng(hash_name("expected maximum"));
  for (const int count : {2, 5, 40, 200}) {
    constexpr int kRounds = 4000;
    double sum = 0, squares = 0;
    for (int round = 0; round < kRounds; ++round) {
      double largest = -std::numeric_limits<double>::infinity();
      for (int i = 0; i < count; ++i) largest = std::max(largest, rng.normal());
      sum += largest, squares += largest * largest;
    }
    const double mean = sum / kRounds, variance = squares / kRounds - mean * mean;
    EXPECT_NEAR(expected_maximum(count), mean, 5 * std::sqrt(variance / kRounds)) << count;
  }
}

TEST(ExpectedMaximum, GrowsAsTheRootOfTwiceTheLogarithm) {
  double before = 0;
  for (int count = 2; count <= 1'000'000'000; count = count < 500'000'000 ? 2 * count : 1'000'000'001) {
    const double maximum = expected_maximum(count);
    EXPECT_GT(maximum, before);
    EXPECT_LT(maximum, std::sqrt(2 * std::log(count))) << "a bound for any count";
    before = maximum;
  }
  EXPECT_GT(before, 5.8);
}

}  // namespace
}  // namespace sluice::tune
