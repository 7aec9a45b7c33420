#include "core/own_time.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <thread>

#include "support/paused_process.h"

namespace sluice {
namespace {

using std::chrono::milliseconds;
using Clock = OwnTime::Clock;

TEST(OwnTime, CountsShortStepsWholeAndALongOneAsTheLongest) {
  const Clock::time_point start{};
  OwnTime time(milliseconds(20), start);
  EXPECT_EQ(time.pass(start + milliseconds(5)), milliseconds(5));
  EXPECT_EQ(time.pass(start + milliseconds(25)), milliseconds(25));
  EXPECT_EQ(time.paused().count(), 0);
  EXPECT_EQ(time.pass(start + milliseconds(3600'000)), milliseconds(45)) << "an hour in which nobody looked";
  EXPECT_EQ(time.paused(), milliseconds(3600'000 - 45));
  EXPECT_EQ(time.pass(start + milliseconds(3600'010)), milliseconds(55));
}

TEST(OwnTime, ExcludesIntervalsOnRequest) {
  const Clock::time_point start{};
  OwnTime time(milliseconds(20), start);
  EXPECT_EQ(time.pass(start + milliseconds(10)), milliseconds(10));
  EXPECT_EQ(time.leave_out(start + milliseconds(18)), milliseconds(10));
  EXPECT_EQ(time.leave_out(start + milliseconds(5000)), milliseconds(10));
  EXPECT_EQ(time.pass(start + milliseconds(5001)), milliseconds(11));
  EXPECT_EQ(time.paused(), milliseconds(4990));
}

TEST(OwnTime, BeginsWhenItIsMade) {
  const auto begin = Clock::now();
  OwnTime time(std::chrono::hours(1));
  std::this_thread::sleep_for(milliseconds(5));
  const auto passed = time.pass();
  EXPECT_GE(passed, milliseconds(5));
  EXPECT_LE(passed, Clock::now() - begin);
}

TEST(OwnClock, LeavesAPauseOut) {
  const int code = test::run_and_pause(milliseconds(200), milliseconds(3000), [] {
    const OwnClock clock;
    std::int64_t now = 0;
    for (const auto begin = Clock::now(); Clock::now() - begin < milliseconds(3400);) {
      std::this_thread::sleep_for(milliseconds(20));
      now = clock.now();
    }
    return now < 2'800'000'000 ? 0 : 1;
  });
  EXPECT_EQ(code, 0);
}

// Each pause counts as 20 ms, so there are five of them in all.
TEST(OwnLimit, TriesUntilItIsOverAndAtLeastOnce) {
  OwnLimit limit(milliseconds(100), milliseconds(20));
  int tries = 0;
  EXPECT_TRUE(limit.retry(milliseconds(20), [&] { return ++tries == 3; }));
  EXPECT_FALSE(limit.retry(milliseconds(20), [&] { return ++tries == 100; })) << "the first wait counts, too";
  EXPECT_LE(tries, 3 + 1 + 3);
  EXPECT_EQ(limit.left().count(), 0);
  EXPECT_TRUE(limit.retry(milliseconds(20), [] { return true; }));
}

class WaitOwnTime : public testing::Test {
 protected:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_there_ = false;

  void bring() {
    const std::scoped_lock lock(mutex_);
    is_there_ = true;
    changed_.notify_all();
  }
  template <typename Excused>
  bool wait(milliseconds limit, const Excused& is_excused) {
    std::unique_lock lock(mutex_);
    return wait_own_time(
        changed_, lock, limit, [this] { return is_there_; }, is_excused);
  }
  bool wait(milliseconds limit) {
    return wait(limit, [] { return false; });
  }
};

TEST_F(WaitOwnTime, EndsWithTheLimitOrWhenWhatItWaitsForIsThere) {
  const auto begin = Clock::now();
  EXPECT_FALSE(wait(milliseconds(300)));
  EXPECT_GE(Clock::now() - begin, milliseconds(300));
  EXPECT_FALSE(wait(milliseconds(0)));
  const std::jthread other([this] { bring(); });
  EXPECT_TRUE(wait(std::chrono::minutes(1)));
  EXPECT_TRUE(wait(milliseconds(0)));
}

TEST_F(WaitOwnTime, TimeThatIsExcusedDoesNotCount) {
  int looks = 0;
  EXPECT_FALSE(wait(milliseconds(300), [&] { return ++looks <= 3; }));
  EXPECT_GE(looks, 3 + 2) << "300 ms are two short waits";
}

// The limit is 1.5 s. The wait takes 1 s of the running time, and the process is stopped for 2 s.
TEST_F(WaitOwnTime, TimeInWhichTheProcessWasStoppedDoesNotCount) {
  const int code = test::run_and_pause(milliseconds(300), milliseconds(2000), [this] {
    const std::jthread other([this] {
      test::run_for(milliseconds(1000));
      bring();
    });
    return wait(milliseconds(1500)) ? 0 : 1;
  });
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace sluice
