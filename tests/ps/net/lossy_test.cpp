// Workers behind a connection that loses messages in both directions, unseen.
#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "core/error.h"
#include "ps/net/toy.h"

namespace sluice::ps::test {
namespace {

// Between a worker and the server: hands messages on, and loses some in both directions.
class LossyWire {
 public:
  LossyWire(int server_port, double loss) : loss_(loss) {
    port_ = front_.listen("127.0.0.1", 0);
    thread_ = std::thread([this, server_port] { run(server_port); });
  }
  ~LossyWire() {
    must_stop_ = true;
    thread_.join();
  }
  [[nodiscard]] int port() const { return port_; }
  [[nodiscard]] int lost() const { return lost_; }

 private:
  bool is_lost() {
    const bool lost = uniform(draws_++) < loss_;
    lost_ += lost ? 1 : 0;
    return lost;
  }
  static double uniform(std::int64_t draw) {
    const std::uint64_t mixed = (static_cast<std::uint64_t>(draw) + 1) * 0x9E3779B97F4A7C15ULL;
    return static_cast<double>((mixed ^ (mixed >> 29)) * 0xBF58476D1CE4E5B9ULL >> 11) * 0x1.0p-53;
  }
  void run(int server_port) {
    std::map<std::string, std::unique_ptr<FrameSocket>> back;  // by worker
    while (!must_stop_) {
      front_.wait(std::chrono::milliseconds(1));
      while (auto received = front_.next()) {
        auto& socket = back[received->peer];
        if (!socket) {
          socket = std::make_unique<FrameSocket>(FrameSocket::Role::kWorker, received->peer, FrameSocket::Limits{});
          socket->connect("127.0.0.1", server_port);
        }
        if (!is_lost()) socket->send({}, received->frames);
      }
      for (auto& [peer, socket] : back) {
        while (auto received = socket->next()) {
          if (!is_lost()) front_.send(peer, received->frames);
        }
      }
    }
  }

  FrameSocket front_{FrameSocket::Role::kServer, {}, {}};
  double loss_;
  int port_ = 0;
  std::int64_t draws_ = 0;
  std::atomic<int> lost_ = 0;
  std::atomic<bool> must_stop_ = false;
  std::thread thread_;
};

TEST(NetworkTest, WhatIsLostOnTheWayIsAskedForAndCountsOnce) {
  constexpr std::int64_t kUpdates = 25;
  ToyServer server(preset_policy("bsp", 3), kUpdates, 2,
                   [](NetworkOptions& options) { options.silence = 20'000'000'000; });
  LossyWire wire(server.port(), 0.2);
  server.start();
  std::vector<std::thread> threads;
  std::atomic<int> pushed = 0;
  for (int w = 0; w < 3; ++w) {
    threads.emplace_back([&, w] {
      try {
        pushed += work(toy_link(wire.port(), w));
      } catch (const PeerError&) {  // it was never told that the run was over
      }
    });
  }
  server.join();
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(server.failure);
  EXPECT_GT(wire.lost(), 20);
  ASSERT_EQ(server.updates.size(), kUpdates);
  for (const NetworkUpdate& update : server.updates) {
    ASSERT_EQ(update.pushes.size(), 3U);
    for (const PushDone& push : update.pushes) EXPECT_EQ(push.record.life, 1);
  }
  EXPECT_LE((in_order(server) - bulk_synchronous_by_hand(3, kUpdates)).abs().max().item<double>(), 1e-12);
}

// Not the weights of an exact run, since others push meanwhile: but it ends, and nothing counts twice.
TEST(NetworkTest, WhatIsLostKeepsNobodyFromGoingOn) {
  for (const char* policy : {"asp", "ssp", "quorum"}) {
    constexpr std::int64_t kUpdates = 60;
    ToyServer server(preset_policy(policy, 3), kUpdates, 2,
                     [](NetworkOptions& options) { options.silence = 20'000'000'000; });
    LossyWire wire(server.port(), 0.2);
    server.start();
    std::vector<std::thread> threads;
    for (int w = 0; w < 3; ++w) {
      threads.emplace_back([&, w] {
        try {
          work(toy_link(wire.port(), w));
        } catch (const PeerError&) {  // it was never told that the run was over
        }
      });
    }
    server.join();
    for (std::thread& thread : threads) thread.join();
    EXPECT_FALSE(server.failure) << policy;
    ASSERT_EQ(server.updates.size(), kUpdates) << policy;
    std::set<std::tuple<WorkerId, int, std::int64_t>> pushes;
    for (const NetworkUpdate& update : server.updates) {
      for (const PushDone& push : update.pushes)
        EXPECT_TRUE(pushes.emplace(push.record.worker, push.record.life, push.record.sequence).second);
    }
    expect_whole_epochs(server);
  }
}

}  // namespace
}  // namespace sluice::ps::test
