#include <cstdlib>

#include <gtest/gtest.h>

#include "app/process.h"

namespace sluice::app {
namespace {

TEST(SettleEnvironment, SetsWhatCudaAndNcclReadWhenTheyStart) {
  for (const auto& [name, value] : default_environment()) ::unsetenv(name);
  settle_environment();
  for (const auto& [name, value] : default_environment()) EXPECT_STREQ(std::getenv(name), value) << name;
  // Otherwise NCCL connects within a step, and two processes may wait for each other for ever.
  EXPECT_STREQ(std::getenv("NCCL_RUNTIME_CONNECT"), "0");
  // More streams than connections would wait for each other.
  EXPECT_STREQ(std::getenv("CUDA_DEVICE_MAX_CONNECTIONS"), "32");
}

TEST(SettleEnvironment, KeepsWhatTheUserHasSet) {
  ::setenv("NCCL_RUNTIME_CONNECT", "1", /*overwrite=*/1);
  settle_environment();
  EXPECT_STREQ(std::getenv("NCCL_RUNTIME_CONNECT"), "1");
}

}  // namespace
}  // namespace sluice::app
