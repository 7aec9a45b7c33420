#include "ddp/sync_timing.h"

#include <gtest/gtest.h>

namespace sluice::ddp {
namespace {

constexpr Nanoseconds kMs = 1'000'000;
constexpr Nanoseconds kHour = 3600 * 1000 * kMs;

using Times = std::vector<std::vector<SumTimes>>;

TEST(SyncTiming, TheLastToBeReadyEndsTheSkewOfTheOthers) {
  SyncTiming timing(0, 3);
  const Readiness answer = timing.readiness(Times{{{10, 100}}, {{40, 100}}, {{25, 100}}});
  EXPECT_EQ(answer.all_there, std::vector<Nanoseconds>{40});
  EXPECT_EQ(answer.late.rank, 1);
  EXPECT_EQ(answer.late.wait, 30);
}

TEST(SyncTiming, TheLastOneHasNoSkewItself) {
  SyncTiming timing(1, 2);
  const Readiness answer = timing.readiness(Times{{{10, 100}}, {{40, 100}}});
  EXPECT_EQ(answer.all_there, std::vector<Nanoseconds>{40});
  EXPECT_EQ(answer.late.rank, 1);
}

// A process that is late for one bucket and early for the last one has not kept the others waiting at the end.
TEST(SyncTiming, WhoIsLateIsSaidByTheLastBucket) {
  SyncTiming timing(0, 2);
  const Readiness answer = timing.readiness(Times{{{10, 60}, {50, 90}}, {{40, 60}, {45, 90}}});
  EXPECT_EQ(answer.all_there, (std::vector<Nanoseconds>{40, 50}));
  EXPECT_EQ(answer.late.rank, 0);
  EXPECT_EQ(answer.late.wait, 5);
}

// Clocks that began hours apart, ends that are read up to a millisecond early or late.
TEST(SyncTiming, ClocksOfOtherMachinesAreComparedByTheEndsOfSums) {
  for (const Nanoseconds apart : {Nanoseconds{0}, 5 * kHour, -7 * kHour}) {
    SyncTiming timing(0, 2);
    for (int step = 0; step < 50; ++step) {
      const Nanoseconds base = step * 200 * kMs, noise = (step * 37 % 21 - 10) * kMs / 10;
      // Process 1 is ready 30 ms after process 0 for the first sum, 20 ms before it for the second.
      const Times times{{{base, base + 60 * kMs}, {base + 50 * kMs, base + 90 * kMs}},
                        {{base + 30 * kMs + apart, base + 60 * kMs + apart + noise},
                         {base + 30 * kMs + apart, base + 90 * kMs + apart - noise}}};
      const Readiness answer = timing.readiness(times);
      if (step < 10) continue;
      EXPECT_NEAR(static_cast<double>(answer.all_there[0] - base), 30.0 * kMs, 1.0 * kMs) << apart;
      EXPECT_EQ(answer.all_there[1], base + 50 * kMs);
      EXPECT_EQ(answer.late.rank, 0);
      EXPECT_NEAR(static_cast<double>(answer.late.wait), 20.0 * kMs, 1.0 * kMs);
    }
  }
}

TEST(SyncTiming, TheAnswerLiesWithinOnesOwnSum) {
  SyncTiming timing(0, 2);
  for (int i = 0; i < 20; ++i) (void)timing.readiness(Times{{{0, 100}}, {{0, 100}}});
  EXPECT_EQ(timing.readiness(Times{{{0, 100}}, {{170, 180}}}).all_there[0], 100);
}

TEST(SyncTiming, WithoutSumsThereIsNothingToSay) {
  SyncTiming timing(0, 2);
  const Readiness answer = timing.readiness(Times{{}, {}});
  EXPECT_TRUE(answer.all_there.empty());
  EXPECT_EQ(answer.late.rank, -1);
}

}  // namespace
}  // namespace sluice::ddp
