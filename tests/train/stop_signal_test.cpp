#include "train/stop_signal.h"

#include <gtest/gtest.h>

#include <csignal>

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

TEST(StopSignalDeathTest, TheSecondSignalEndsTheProcessAtOnce) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto twice = [] {
    const StopSignal stop;
    std::raise(SIGINT);
    std::raise(SIGINT);
  };
  EXPECT_EXIT(twice(), testing::ExitedWithCode(130), "");
}

}  // namespace
}  // namespace sluice::train
