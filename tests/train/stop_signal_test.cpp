#include "train/setup/stop_signal.h"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

namespace sluice::train {
namespace {

volatile std::sig_atomic_t g_seen_by_old_handler = 0;

TEST(StopSignal, IsRequestedByTheFirstSignalAndNamesIt) {
  for (const auto& [number, name] : {std::pair{SIGINT, "SIGINT"}, std::pair{SIGTERM, "SIGTERM"}}) {
    const StopSignal stop;
    EXPECT_FALSE(StopSignal::requested());
    std::raise(number);
    EXPECT_TRUE(StopSignal::requested());
    EXPECT_STREQ(StopSignal::name(), name);
  }
}

TEST(StopSignal, PutsTheOldHandlersBack) {
  std::signal(SIGTERM, [](int) { g_seen_by_old_handler = 1; });
  {
    const StopSignal stop;
    std::raise(SIGTERM);
    EXPECT_EQ(g_seen_by_old_handler, 0);
  }
  std::raise(SIGTERM);
  EXPECT_EQ(g_seen_by_old_handler, 1);
  std::signal(SIGTERM, SIG_DFL);
}

TEST(StopSignal, OfAProgramThatEndsLeavesLateSignalsWithoutEffect) {
  { const StopSignal stop(StopSignal::Afterwards::kIgnored); }
  std::raise(SIGTERM);
  EXPECT_FALSE(StopSignal::requested());
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) std::signal(number, SIG_DFL);
}

TEST(StopSignalDeathTest, ALaterSignalEndsTheProcessAtOnceAndARepetitionDoesNot) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto twice = [](std::chrono::milliseconds apart) {
    const StopSignal stop;
    std::raise(SIGINT);
    std::this_thread::sleep_for(apart);
    std::raise(SIGTERM);
    std::_Exit(7);
  };
  EXPECT_EXIT(twice(std::chrono::milliseconds(0)), testing::ExitedWithCode(7), "");
  EXPECT_EXIT(twice(std::chrono::milliseconds(1200)), testing::ExitedWithCode(128 + SIGTERM), "second signal");
}

}  // namespace
}  // namespace sluice::train
