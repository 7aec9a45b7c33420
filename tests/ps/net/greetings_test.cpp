// What a server makes of a worker's greetings, of which any may come twice and any answer may be lost.
#include <gtest/gtest.h>

#include <tuple>

#include "ps/net/stranger.h"
#include "ps/net/toy.h"

namespace sluice::ps::test {
namespace {

// A process that knows pushes of an earlier server's time would take them for its own. A greeting that comes twice is
// one: for another incarnation of its own it would be told that nothing was committed, and push once more what had
// been.
TEST(NetworkTest, WhatAProcessHasPushedIsNotToldToAnotherOne) {
  for (const bool is_another : {false, true}) {
    ToyServer server(preset_policy("asp", 1), 9, 1,
                     [](NetworkOptions& options) { options.peer_timeout = 20'000'000'000; });
    server.start();
    Stranger worker(server.port()), other(server.port(), "other");
    const Stranger::Begun begun = worker.begin(0, toy_layout(1));
    Push push = toy_push(0, begun.weights, begun.samples);
    push.record.incarnation = 1;
    push.record.sequence = 1;
    worker.send(with_tensors(header_of(PushMade{push.record, {}, {}, begun.lease}), push.tensors));
    ASSERT_TRUE(worker.receive_kind<PushAnswered>().has_value());
    if (is_another) {
      worker.send({header_of(Leaving{})});
      ++push.record.incarnation;
      worker.send(with_tensors(header_of(PushMade{push.record, {}, {}, begun.lease}), push.tensors));
      ASSERT_TRUE(worker.receive_kind<PushAnswered>()) << "the server has heard what came before";
    }
    Stranger& next = is_another ? other : worker;
    const Incarnation first{.number = 1, .server_epoch = is_another ? begun.server_epoch + 1 : begun.server_epoch};
    for (int times = 0; times < 2; ++times)
      next.send({header_of(Hello{.worker = WorkerId{0},
                                 .process_id = is_another ? "other" : "s",
                                 .where = "here",
                                 .batch = kLease,
                                 .abandons = first})});
    for (int times = 0; times < 2; ++times) {
      std::optional<Welcome> welcome;
      while (!welcome || welcome->incarnation.number == 1) {
        const auto received = next.receive_kind<Welcome>();
        ASSERT_TRUE(received.has_value());
        welcome = received->first;
      }
      EXPECT_EQ(std::tuple(welcome->incarnation.number, welcome->last_committed, welcome->abandoned == first),
                (std::tuple<std::int64_t, std::int64_t, bool>(2, is_another ? 0 : 1, true)));
    }
    server.stop();
    EXPECT_EQ(std::ranges::count(server.events, WorkerEvent::What::kLost, &WorkerEvent::what), is_another ? 0 : 1);
  }
}

// The server that dies has committed one worker's push and not the other's. A greeting of that one that came twice was
// given up in between, and for that moment the next server did not wait for it.
TEST(NetworkTest, AGreetingThatComesTwiceMakesNoUpdateWithoutItsWorker) {
  const auto with_push_of_first = [](Server& server, data::Ledger&, NetworkOptions& options) {
    options.peer_timeout = 20'000'000'000;
    Push push = toy_push(0, server.weights().tensors, {1, 2});
    push.record.incarnation = 1;
    push.record.sequence = 1;
    options.committed_before.push_back({.push = std::move(push), .epoch = 0, .samples = {1, 2}});
  };
  ToyServer server(preset_policy("bsp", 2), 5, 1, {}, std::nullopt, with_push_of_first);
  server.start();
  Stranger first(server.port(), "first"), second(server.port(), "second");
  for (const int worker : {0, 1}) {
    Stranger& peer = worker == 0 ? first : second;
    const Hello hello{.worker = WorkerId{worker},
                      .process_id = std::to_string(worker),
                      .where = "here",
                      .batch = kLease,
                      .abandons = {.number = 1, .server_epoch = 1}};
    for (int times = 0; times < 2; ++times) peer.send({header_of(hello)});
    for (int times = 0; times < 2; ++times) {
      const auto welcome = peer.receive_kind<Welcome>();
      ASSERT_TRUE(welcome);
      EXPECT_EQ(
          std::pair(welcome->first.incarnation.number, welcome->first.last_committed),
          worker == 0 ? (std::pair<std::int64_t, std::int64_t>(2, 1)) : (std::pair<std::int64_t, std::int64_t>(1, 0)));
    }
  }
  const auto heartbeat = second.receive_kind<ServerHeartbeat>();
  ASSERT_TRUE(heartbeat);
  EXPECT_EQ(heartbeat->first.of.number, 1);
  server.stop();
  EXPECT_EQ(server.server().progress().version, 0);
}

}  // namespace
}  // namespace sluice::ps::test
