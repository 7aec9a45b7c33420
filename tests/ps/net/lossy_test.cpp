// Workers behind a connection that loses messages in both directions, unseen.
#include <gtest/gtest.h>

#include <set>
#include <tuple>
#include <vector>

#include "ps/net/lossy_wire.h"
#include "ps/net/toy.h"
#include "support/long_tests.h"

namespace sluice::ps::test {
namespace {

// The last word of a worker may be lost: then the drain lasts as long as this.
void be_patient(NetworkOptions& options) {
  options.peer_timeout = 20'000'000'000;
  options.drain_timeout = 3'000'000'000;
}

TEST(NetworkTest, WhatIsLostOnTheWayIsAskedForAndCountsOnce) {
  constexpr std::int64_t kUpdates = 25;
  ToyServer server(preset_policy("bsp", 3), kUpdates, 2, be_patient);
  LossyWire wire(server.port(), 0.2);
  server.start();
  std::vector<std::thread> threads;
  for (int w = 0; w < 3; ++w) {
    threads.emplace_back([&, w] { work_to_the_end(toy_link(wire.port(), w)); });
  }
  server.join();
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(server.failure);
  EXPECT_GT(wire.lost(), 20);
  ASSERT_EQ(server.updates.size(), kUpdates);
  for (const NetworkUpdate& update : server.updates) {
    ASSERT_EQ(update.pushes.size(), 3U);
    for (const PushDone& push : update.pushes) EXPECT_EQ(push.record.incarnation, 1);
  }
  EXPECT_LE((in_order(server) - bulk_synchronous_by_hand(3, kUpdates)).abs().max().item<double>(), 1e-12);
}

// Not the weights of an exact run, since others push meanwhile: but it ends, and nothing counts twice.
TEST(NetworkTest, WhatIsLostKeepsNobodyFromGoingOn) {
  std::vector<const char*> policies{"asp", "ssp", "quorum"};
  const std::size_t number = policies.size();
  if (!sluice::test::runs_long_tests()) policies.resize(1);
  sluice::test::tell_share(policies.size(), number, "policies");
  for (const char* policy : policies) {
    constexpr std::int64_t kUpdates = 30;
    ToyServer server(preset_policy(policy, 3), kUpdates, 2, be_patient);
    LossyWire wire(server.port(), 0.2);
    server.start();
    std::vector<std::thread> threads;
    for (int w = 0; w < 3; ++w) {
      threads.emplace_back([&, w] { work_to_the_end(toy_link(wire.port(), w)); });
    }
    server.join();
    for (std::thread& thread : threads) thread.join();
    EXPECT_FALSE(server.failure) << policy;
    ASSERT_EQ(server.updates.size(), kUpdates) << policy;
    std::set<std::tuple<WorkerId, int, std::int64_t>> pushes;
    for (const NetworkUpdate& update : server.updates) {
      for (const PushDone& push : update.pushes)
        EXPECT_TRUE(pushes.emplace(push.record.worker, push.record.incarnation, push.record.sequence).second);
    }
    expect_whole_epochs(server);
  }
}

}  // namespace
}  // namespace sluice::ps::test
