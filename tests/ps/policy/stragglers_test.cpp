#include "ps/policy/stragglers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace sluice::ps {
namespace {

double mean_of(const Stragglers& stragglers, int draws) {
  double sum = 0;
  for (int i = 0; i < draws; ++i) sum += stragglers.stall_s(WorkerId{i % 10}, i / 10);
  return sum / draws;
}

// Of the recorded runs on EC2 with ten workers: E = 0.996 s, E[longest of ten] = 4.03 s, P(some of ten > 4 s) = 0.65.
TEST(Stragglers, Ec2HasTheMomentsOfTheRecordedRuns) {
  const Stragglers ec2({.kind = "ec2", .seed = 1});
  EXPECT_NEAR(mean_of(ec2, 200'000), 0.996, 0.02);
  constexpr int kSteps = 20'000;
  double longest = 0, late = 0;
  for (int step = 0; step < kSteps; ++step) {
    double of_step = 0;
    for (int w = 0; w < 10; ++w) of_step = std::max(of_step, ec2.stall_s(WorkerId{w}, step));
    EXPECT_LE(of_step, 6.5);
    longest += of_step / kSteps;
    late += of_step > 4 ? 1.0 / kSteps : 0;
  }
  EXPECT_NEAR(longest, 4.03, 0.04);
  EXPECT_NEAR(late, 0.65, 0.015);
}

TEST(Stragglers, CedarIsMilder) {
  // 0.3 x E|N(.05, .04)| + 0.2 x .15 + 0.1 x .25; the first folds a little over.
  EXPECT_NEAR(mean_of(Stragglers({.kind = "cedar"}), 100'000), 0.0708, 0.002);
}

TEST(Stragglers, TheExponentialIsShifted) {
  const Stragglers exponential({.kind = "exponential", .shift_s = 2, .mean_s = 0.5});
  EXPECT_NEAR(mean_of(exponential, 100'000), 2.5, 0.01);
  int beyond = 0;
  for (int i = 0; i < 100'000; ++i) {
    const double stall = exponential.stall_s(WorkerId{0}, i);
    EXPECT_GE(stall, 2);
    beyond += stall > 2.5 ? 1 : 0;
  }
  EXPECT_NEAR(beyond / 100'000.0, std::exp(-1), 0.006);
}

TEST(Stragglers, AreAFunctionOfSeedWorkerAndStep) {
  const Stragglers one({.kind = "ec2", .seed = 1}), again({.kind = "ec2", .seed = 1}),
      other({.kind = "ec2", .seed = 2});
  const Stragglers twice({.kind = "ec2", .seed = 1, .scale = 2});
  int differ = 0;
  for (int step = 0; step < 100; ++step) {
    const double stall = one.stall_s(WorkerId{3}, step);
    EXPECT_EQ(stall, again.stall_s(WorkerId{3}, step));
    EXPECT_EQ(2 * stall, twice.stall_s(WorkerId{3}, step));
    differ += stall != other.stall_s(WorkerId{3}, step) && stall != one.stall_s(WorkerId{4}, step) ? 1 : 0;
  }
  EXPECT_GT(differ, 50);
  EXPECT_EQ(Stragglers({}).stall_s(WorkerId{0}, 0), 0);
}

TEST(Stragglers, RefuseWhatCannotBe) {
  EXPECT_THROW(Stragglers({.kind = "lazy"}), ConfigError);
  EXPECT_THROW(Stragglers({.scale = 0}), ConfigError);
  EXPECT_THROW(Stragglers({.shift_s = -1}), ConfigError);
  EXPECT_THROW(Stragglers({.mean_s = NAN}), ConfigError);
}

}  // namespace
}  // namespace sluice::ps
