#include "comm/clock_offset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <vector>

namespace sluice::comm {
namespace {

// For random meetings and delays, the true difference is within the reported error.
TEST(ClockOffset, TheDifferenceLiesWithinTheError) {
  std::mt19937_64 random(3);
  const auto between = [&](Nanoseconds least, Nanoseconds most) {
    return std::uniform_int_distribution<Nanoseconds>(least, most)(random);
  };
  for (int round = 0; round < 500; ++round) {
    const Nanoseconds planted = between(-1'000'000'000'000, 1'000'000'000'000);
    std::vector<Meeting> own, reference;
    Nanoseconds now = 0;
    for (int meeting = 0; meeting < 8; ++meeting) {
      const Nanoseconds a = now + between(0, 300'000), b = now + between(0, 300'000), all = std::max(a, b);
      const Nanoseconds a_left = all + between(0, 200'000), b_left = all + between(0, 5'000'000);
      reference.push_back({a, a_left});
      own.push_back({b + planted, b_left + planted});
      now = std::max(a_left, b_left);
    }
    const ClockOffset found = clock_offset(own, reference);
    EXPECT_LE(std::llabs(found.offset - planted), found.error) << round;
    EXPECT_LE(found.error, 5'000'000);
  }
}

TEST(ClockOffset, WhatWasMeasuredTwiceHoldsInBetween) {
  const ClockOffset both = covering({.offset = 100, .error = 10}, {.offset = 180, .error = 31});
  EXPECT_EQ(both.offset, 150);  // 90 .. 211
  EXPECT_EQ(both.error, 61);
  const ClockOffset same = covering({.offset = -7, .error = 3}, {.offset = -7, .error = 5});
  EXPECT_EQ(same.offset, -7);
  EXPECT_EQ(same.error, 5);
}

TEST(ClockOffset, ManyMeetingsNarrowIt) {
  // One way takes 10, the other 30: the middle is off by 10, and the error says so.
  const std::vector<Meeting> reference{{0, 100}, {200, 240}}, own{{1000, 1100}, {1210, 1250}};
  const ClockOffset found = clock_offset(own, reference);
  EXPECT_EQ(found.offset, 1010);  // between 1210 - 240 and 1250 - 200
  EXPECT_EQ(found.error, 40);
}

}  // namespace
}  // namespace sluice::comm
