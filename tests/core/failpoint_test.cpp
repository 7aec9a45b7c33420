#include "core/failpoint.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>

#include "core/error.h"

namespace sluice {
namespace {

void pass_with(const char* moment) {
  ::setenv(kKillAt, moment, 1);  // in a process of its own (death test), which reads it for the first time
  failpoint("one");
  failpoint("other");
  failpoint("other");
  std::_Exit(0);
}

class FailpointTest : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(FailpointTest, KillsAtTheGivenCallOfThePoint) {
  EXPECT_EXIT(pass_with("other"), testing::KilledBySignal(SIGKILL), "");
  EXPECT_EXIT(pass_with("other:2"), testing::KilledBySignal(SIGKILL), "");
  EXPECT_EXIT(pass_with("other:3"), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(pass_with("one:2"), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(pass_with("oth"), testing::ExitedWithCode(0), "");
}

TEST_F(FailpointTest, RefusesWhatItCannotRead) {
  for (const char* const text : {"other:", "other:0", "other:-1", "other:x", "other:2x"}) {
    ::setenv(kKillAt, text, 1);
    EXPECT_THROW(failpoint("other"), ConfigError) << text;
  }
  ::unsetenv(kKillAt);
}

}  // namespace
}  // namespace sluice
