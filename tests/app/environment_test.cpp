#include <cstdlib>

#include <gtest/gtest.h>

#include "app/process.h"

namespace sluice::app {
namespace {

// Otherwise NCCL connects within a step, and two processes may wait for each other for ever.
TEST(SettleEnvironment, LetsNcclConnectWhenACommunicatorIsMade) {
  ::unsetenv("NCCL_RUNTIME_CONNECT");
  settle_environment();
  EXPECT_STREQ(std::getenv("NCCL_RUNTIME_CONNECT"), "0");
}

TEST(SettleEnvironment, KeepsWhatTheUserHasSet) {
  ::setenv("NCCL_RUNTIME_CONNECT", "1", /*overwrite=*/1);
  settle_environment();
  EXPECT_STREQ(std::getenv("NCCL_RUNTIME_CONNECT"), "1");
}

}  // namespace
}  // namespace sluice::app
