#include "core/own_time.h"

#include <gtest/gtest.h>

#include <thread>

namespace sluice {
namespace {

using std::chrono::milliseconds;

TEST(OwnTime, CountsAStepThatIsFarTooLongAsOneStep) {
  OwnTime time(milliseconds(20));
  std::this_thread::sleep_for(milliseconds(300));  // as a pause looks
  EXPECT_EQ(time.pass(), milliseconds(20));
  EXPECT_GE(time.paused(), milliseconds(280));
}

TEST(OwnTime, CountsShortStepsWhole) {
  const auto begin = std::chrono::steady_clock::now();
  OwnTime time(std::chrono::hours(1));
  std::this_thread::sleep_for(milliseconds(5));
  const auto first = time.pass();
  EXPECT_GE(first, milliseconds(5));
  const auto second = time.pass();
  EXPECT_GE(second, first);
  EXPECT_LE(second, std::chrono::steady_clock::now() - begin);
  EXPECT_EQ(time.paused().count(), 0);
}

}  // namespace
}  // namespace sluice
