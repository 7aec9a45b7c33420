// The lead server's connection to one other server, which is played here, message by message.
#include "ps/net/shard_link.h"

#include <gtest/gtest.h>

#include "ps/net/toy.h"

namespace sluice::ps::test {
namespace {

class PlayedServer : public testing::Test {
 protected:
  // Runs the lead until a message of this kind has come; those before are taken down.
  template <typename Kind>
  Kind receive() {
    for (int i = 0; i < 500; ++i) {
      link_.look();
      socket_.wait(kHeartbeatInterval / 2 * std::chrono::nanoseconds(1));
      while (auto received = socket_.next()) {
        lead_ = received->routing_id;
        const auto message = from_lead(received->frames.front());
        if (!message) continue;
        if (const auto* there = std::get_if<WorkerThere>(&*message)) received_workers_.push_back(*there);
        if (const auto* wanted = std::get_if<Kind>(&*message)) return *wanted;
      }
    }
    ADD_FAILURE() << "no such message has come";
    return {};
  }
  void send(const ShardsToLead& message) { socket_.send(lead_, {header_of(message)}); }
  void answer(const LeadHello& hello) { send(here(hello.greeting)); }
  static ShardsHere here(std::int64_t greeting) {
    return {.process_id = "played", .run = "toy", .version = 0, .greeting = greeting};
  }
  // Whether a heartbeat says so; those that left before the last send_worker() say another number.
  bool has_told(std::int64_t count) {
    for (int heartbeats = 0; heartbeats < 50; ++heartbeats) {
      if (receive<LeadHeartbeat>().workers_sent == count) return true;
    }
    return false;
  }
  // As of a run that it has the shards of already.
  void meet() {
    answer(receive<LeadHello>());
    (void)receive<LeadHeartbeat>();
    link_.resume(/*version=*/0);
  }
  [[nodiscard]] std::vector<std::int64_t> versions_told() const {
    std::vector<std::int64_t> versions;
    for (const WorkerThere& there : received_workers_) versions.push_back(there.version);
    return versions;
  }

  FrameSocket socket_{FrameSocket::Role::kListening, {}, kFromServers};
  ShardLink link_{{.host = "127.0.0.1",
                   .port = socket_.listen("127.0.0.1", 0),
                   .where = "test",
                   .assignment = {toy_layout(2), shards_of_server(toy_layout(2), 1, 2)},
                   .run = "toy",
                   .heartbeat_interval = kHeartbeatInterval}};
  std::string lead_;
  std::vector<WorkerThere> received_workers_;
};

// By how many there are the other server sees that one is lost. One that comes while the lead greets it anew, and then
// again with all the others, would stand for it: its worker would wait for its weights in vain.
TEST_F(PlayedServer, IsToldOfEachWorkerOnceAfterAGreeting) {
  meet();
  link_.send_worker({.worker = WorkerId{0}, .incarnation = {1}, .routing_id = "a", .version = 1});
  link_.send_worker({.worker = WorkerId{1}, .incarnation = {1}, .routing_id = "b", .version = 2});
  EXPECT_TRUE(has_told(2));
  send(ShardHeartbeat{.process_id = "played", .is_up_to_date = false});  // one of them was lost
  LeadHello hello = receive<LeadHello>();
  received_workers_.clear();
  link_.send_worker({.worker = WorkerId{1}, .incarnation = {1}, .routing_id = "b", .version = 3});
  hello = receive<LeadHello>();
  EXPECT_TRUE(received_workers_.empty()) << "while it is greeted";
  answer(hello);
  EXPECT_TRUE(has_told(2));
  EXPECT_EQ(versions_told(), (std::vector<std::int64_t>{1, 3}));
}

// It may have a connection of it still.
TEST_F(PlayedServer, IsToldAgainOfAWorkerThatHasGone) {
  meet();
  link_.send_worker({.worker = WorkerId{0}, .incarnation = {1}, .routing_id = "a", .version = 1});
  link_.send_worker({.worker = WorkerId{0}, .incarnation = {1}});
  EXPECT_TRUE(has_told(2));
  send(ShardHeartbeat{.process_id = "played", .is_up_to_date = false});
  const LeadHello hello = receive<LeadHello>();
  received_workers_.clear();
  answer(hello);
  EXPECT_TRUE(has_told(1));
  ASSERT_EQ(received_workers_.size(), 1U);
  EXPECT_EQ(received_workers_.front().routing_id, "");
}

}  // namespace
}  // namespace sluice::ps::test
