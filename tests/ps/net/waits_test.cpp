// What a server says, and what it counts, while it waits for others.
#include <gtest/gtest.h>

#include "ps/net/toy_shards.h"
#include "support/paused_process.h"

namespace sluice::ps::test {
namespace {

using std::chrono::milliseconds;

// Without signs of life it was given up itself, by its workers and by the servers that live.
TEST(WaitsTest, TheLeadShowsThatItLivesWhileItWaitsForAnotherServer) {
  constexpr Nanoseconds kPeerTimeout = 2'000'000'000;
  constexpr milliseconds kSleep{3000};
  ToyShardServer sleeps, awake({}, [](ShardServerOptions&options) { options.peer_timeout = kPeerTimeout; });
  std::jthread waker;
  ToyServer lead(preset_policy("asp", 1), 4, 3,
                 [&](NetworkOptions& options) {
                   options.wants_state = [&](const ServerProgress&, const ServerProgress& after) {
                     if (after.version != 2) return false;
                     sleeps.fall_asleep();
                     waker = std::jthread([&] {
                       std::this_thread::sleep_for(kSleep);
                       sleeps.wake_up();
                     });
                     return true;  // the state of that server is asked for next
                   };
                 },
                 std::nullopt, nullptr, {sleeps.address(), awake.address()});
  lead.start();
  LinkOptions link = toy_link(lead.port(), 0);
  link.others = {sleeps.address(), awake.address()};
  link.peer_timeout = kPeerTimeout;
  EXPECT_EQ(work_to_the_end(link), 4);
  lead.join();
  EXPECT_FALSE(lead.failure);
  EXPECT_EQ(lead.updates.size(), 4U);
  for (ToyShardServer* other : {&sleeps, &awake}) {
    other->join();
    EXPECT_EQ(other->failure, "");
  }
}

// This process was stopped for longer than the server waits for its workers.
TEST(WaitsTest, APauseIsNoTimeInWhichWorkersDidNotCome) {
  const int code = sluice::test::run_and_pause(milliseconds(500), milliseconds(6500), [] {
    ToyServer server(preset_policy("bsp", 2), 5, 1,
                     [](NetworkOptions& options) { options.connect_timeout = 6'000'000'000; });
    server.start();
    sluice::test::run_for(milliseconds(900));
    std::thread other([&] { work(toy_link(server.port(), 1)); });
    const int pushed = work(toy_link(server.port(), 0));
    other.join();
    server.join();
    return !server.failure && pushed == 5 ? 0 : 1;
  });
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace sluice::ps::test
