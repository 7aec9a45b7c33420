#include "core/clock.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "core/host.h"
#include "core/process_age.h"

namespace sluice {
namespace {

TEST(Clock, SecondsBecomeTheNearestNanosecond) {
  EXPECT_EQ(from_s(0.3), 300'000'000) << "0.3 is a little less, and is not cut off";
  EXPECT_EQ(from_s(1e-9), 1);
  EXPECT_EQ(from_s(to_s(1'234'567'891)), 1'234'567'891);
  EXPECT_EQ(from_s(-2.5), -2'500'000'000);
}

TEST(ProcessAge, Grows) {
  const double before = process_age_s();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_GT(process_age_s(), before);
}

TEST(Host, AProcessIsNamedByItsMachineAndNumber) {
  EXPECT_TRUE(process_name().starts_with(host_name() + ", process ")) << process_name();
}

}  // namespace
}  // namespace sluice
