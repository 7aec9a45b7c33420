#include "pipeline/channel.h"

#include <gtest/gtest.h>

#include <thread>

namespace sluice::pipeline {
namespace {

TEST(Channel, DeliversInOrderAcrossThreads) {
  Channel<int> channel;
  std::jthread sender([&] {
    for (int i = 0; i < 1000; ++i) channel.push(i);
  });
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(channel.pop(), i);
}

TEST(Channel, CloseWakesAWaitingReceiverAndDropsTheRest) {
  Channel<int> channel;
  std::jthread closer([&] { channel.close(); });
  EXPECT_EQ(channel.pop(), std::nullopt);
  channel.push(1);
  EXPECT_EQ(channel.pop(), std::nullopt);
}

}  // namespace
}  // namespace sluice::pipeline
