#include "tune/budget.h"

#include <gtest/gtest.h>

namespace sluice::tune {
namespace {

using Part = Budget::Part;

TEST(Budget, WhatAPartLeavesIsForTheRuns) {
  double now = 1000;
  Budget budget(100, /*may_change_batch=*/false, [&] { return now; });
  EXPECT_EQ(budget.describe(), "measuring at most 60.0 s, searching at most 20.0 s, running plans with what is left");
  EXPECT_NEAR(budget.left(), 60, 1e-9);
  now += 25;
  EXPECT_NEAR(budget.left(), 35, 1e-9);
  budget.begin(Part::kSearching);
  EXPECT_NEAR(budget.left(), 20, 1e-9) << "its own share, however early it begins";
  now += 5;
  EXPECT_NEAR(budget.left(), 15, 1e-9);
  budget.begin(Part::kRunning);
  EXPECT_NEAR(budget.left(), 65, 1e-9) << "the last twentieth is for its end";
  now += 12.5;
  EXPECT_NEAR(budget.left(), 52.5, 1e-9);
  EXPECT_NEAR(budget.used(), 42.5, 1e-9);
  EXPECT_NEAR(budget.used_by(Part::kMeasuring), 25, 1e-9);
  EXPECT_EQ(budget.describe_use(), "42.5 of 100.0 s: measuring 25.0 s, searching 5.0 s, running plans 12.5 s");
}

// A process takes its time to start, and its user waits for that, too.
TEST(Budget, WhatWasUsedBeforeCountsAsMeasuring) {
  const Budget budget(
      100, /*may_change_batch=*/false, [] { return 7.0; }, /*seconds_ago=*/13);
  EXPECT_NEAR(budget.used(), 13, 1e-9);
  EXPECT_NEAR(budget.left(), 47, 1e-9);
}

TEST(Budget, WhatMeasuringTakesTooLongIsTakenFromTheRuns) {
  double now = 0;
  Budget budget(100, /*may_change_batch=*/false, [&] { return now; });
  now = 70;
  EXPECT_EQ(budget.left(), 0);
  budget.begin(Part::kSearching);
  EXPECT_NEAR(budget.left(), 20, 1e-9) << "without a search there is no plan";
  now = 110;
  budget.begin(Part::kRunning);
  EXPECT_EQ(budget.left(), 0) << "never less than nothing";
}

TEST(Budget, AnotherBatchHasASearchAndARunOfItsOwn) {
  double now = 0;
  Budget budget(200, /*may_change_batch=*/true, [&] { return now; });
  EXPECT_EQ(budget.describe(),
            "measuring at most 80.0 s, searching for each batch at most 20.0 s, the gradient noise at most 40.0 s, "
            "searching at most 20.0 s, running plans with what is left");
  for (const auto& [part, share] : {std::pair(Part::kBatches, 20.0), std::pair(Part::kNoise, 40.0),
                                    std::pair(Part::kSearching, 20.0), std::pair(Part::kRunning, 190 - 4.0)}) {
    now += 1;
    budget.begin(part);
    EXPECT_NEAR(budget.left(), share, 1e-9);
  }
}

}  // namespace
}  // namespace sluice::tune
