// A signal before the first step ends the run at once and leaves nothing; one after it is the loop's.
#include "train/setup/stop_before_training.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <future>
#include <string>
#include <thread>

#include "core/log.h"
#include "core/progress_line.h"
#include "train/setup/stop_signal.h"

namespace sluice::train {
namespace {

using testing::HasSubstr;

constexpr std::chrono::seconds kTimeout{60};

TEST(StopBeforeTraining, ASignalEndsTheRunAndSaysThatNothingIsKept) {
  const StopSignal signal;
  StopBeforeTraining before;
  std::promise<std::string> said;
  const std::jthread watch = before.watch([&](const InterruptedError& why) { said.set_value(why.what()); });
  std::raise(SIGTERM);
  auto what = said.get_future();
  ASSERT_EQ(what.wait_for(kTimeout), std::future_status::ready);
  EXPECT_EQ(what.get(), "stopped by SIGTERM before the first step; nothing was trained or saved");
}

TEST(StopBeforeTraining, AfterItHasBegunASignalIsNotItsMatterAndNothingIsDiscarded) {
  const StopSignal signal;
  StopBeforeTraining before;
  int discarded = 0;
  before.on_discard([&] { ++discarded; });
  {
    const std::jthread watch = before.watch([](const InterruptedError& why) { ADD_FAILURE() << why.what(); });
    before.training_begins();
    std::raise(SIGTERM);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  before.discard();
  EXPECT_EQ(discarded, 0);
}

TEST(StopBeforeTraining, DiscardsOnce) {
  StopBeforeTraining before;
  before.discard();
  int discarded = 0;
  before.on_discard([&] { ++discarded; });
  before.discard();
  before.discard();
  EXPECT_EQ(discarded, 1);
}

TEST(StopBeforeTraining, WithoutASignalItsThreadEndsWhenAsked) {
  const StopSignal signal;
  StopBeforeTraining before;
  const std::jthread watch = before.watch([](const InterruptedError& why) { ADD_FAILURE() << why.what(); });
}

TEST(ProgressLine, WithoutATerminalALineOfTheLogEveryFewSeconds) {
  if (progress_is_shown()) GTEST_SKIP() << "standard error is a terminal";
  Nanoseconds now = 0;
  ProgressLine progress([&] { return now; });
  testing::internal::CaptureStderr();
  for (int second = 0; second <= 12; ++second) {
    now = second * Nanoseconds{1'000'000'000};
    progress.show([&] { return "at " + std::to_string(second); });
  }
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr(" at 5\n"));
  EXPECT_THAT(log, HasSubstr(" at 10\n"));
  EXPECT_EQ(std::ranges::count(log, '\n'), 2) << log;
}

}  // namespace
}  // namespace sluice::train
