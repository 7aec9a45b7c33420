#include "ps/net/refusals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

namespace sluice::ps::test {
namespace {

using testing::HasSubstr;

constexpr Nanoseconds kSecond = 1'000'000'000;

std::string logged(const std::function<void()>& action) {
  testing::internal::CaptureStderr();
  action();
  return testing::internal::GetCapturedStderr();
}

TEST(RefusalsTest, AnotherOneIsToldAndTheSameOneOnceAMinute) {
  Refusals refusals;
  const auto log = [&](const char* who, Nanoseconds now) {
    return logged([&] { refusals.log(who, "its key is another", now); });
  };
  EXPECT_THAT(log("worker 0", kSecond), HasSubstr("worker 0 was refused: its key is another"));
  EXPECT_EQ(log("worker 0", 2 * kSecond), "");
  EXPECT_THAT(log("worker 1", 3 * kSecond), HasSubstr("worker 1 was refused"));
  EXPECT_THAT(log("worker 1", 70 * kSecond), HasSubstr("worker 1 was refused"));
  EXPECT_EQ(refusals.but_last(), ", but worker 1 was refused: its key is another");
}

// Whoever reaches the port can be refused as often as it likes, with as long a text.
TEST(RefusalsTest, StrangersDoNotFillTheLog) {
  Refusals refusals;
  const std::string log = logged([&] {
    for (int i = 0; i < 1000; ++i) refusals.log(std::to_string(i), std::string(100'000, 'x'), kSecond + i);
  });
  EXPECT_EQ(std::ranges::count(log, '\n'), 21);
  EXPECT_LT(log.size(), 21u * 500);
  EXPECT_THAT(log, HasSubstr("further refusals within this minute are not logged"));
}

}  // namespace
}  // namespace sluice::ps::test
