#include "core/thread_time.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace sluice {
namespace {

TEST(ThreadTime, DoesNotPassWhileTheThreadSleeps) {
  const Nanoseconds begin = now_ns(), own_begin = thread_time_ns();
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  EXPECT_GE(now_ns() - begin, 60'000'000);
  EXPECT_LT(thread_time_ns() - own_begin, 30'000'000);
}

TEST(ThreadTime, PassesWhileTheThreadWorksAndNeverFasterThanTheClock) {
  constexpr Nanoseconds kWork = 20'000'000;
  const Nanoseconds begin = now_ns(), own_begin = thread_time_ns();
  while (thread_time_ns() - own_begin < kWork) {
  }
  EXPECT_GE(now_ns() - begin, kWork - 1'000'000) << "the two clocks tick apart by less";
}

TEST(ThreadTime, IsThatOfTheCallingThreadAlone) {
  const Nanoseconds own_begin = thread_time_ns();
  std::jthread([] {
    const Nanoseconds begin = thread_time_ns();
    while (thread_time_ns() - begin < 60'000'000) {
    }
  }).join();
  EXPECT_LT(thread_time_ns() - own_begin, 30'000'000);
}

}  // namespace
}  // namespace sluice
