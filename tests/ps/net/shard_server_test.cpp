// Servers that keep some of the shards, beside one that decides: what they learn together, and what they survive.
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ps/net/lossy_wire.h"
#include "ps/net/toy_shards.h"
#include "support/long_tests.h"

namespace {
std::atomic<std::int64_t> shard_log_syncs = 0;  // how often something was
}

// Instead of the C library's, to count.
extern "C" int fdatasync(int fd) {
  ++shard_log_syncs;
  return static_cast<int>(::syscall(SYS_fdatasync, fd));
}

namespace sluice::ps::test {
namespace {

using sluice::test::TempDir;

// A lead server and others, with as many shards as servers, and workers that run until its end.
struct Together {
  explicit Together(int servers, const SyncPolicy& policy, std::int64_t updates,
                    const std::function<void(NetworkOptions&)>& change = {}) {
    for (int i = 1; i < servers; ++i) others.push_back(std::make_unique<ToyShardServer>());
    lead = std::make_unique<ToyServer>(policy, updates, servers, change, std::nullopt, nullptr, addresses());
  }

  [[nodiscard]] std::vector<ServerAddress> addresses() const {
    std::vector<ServerAddress> all;
    for (const auto& other : others) all.push_back(other->address());
    return all;
  }
  [[nodiscard]] std::vector<const ToyShardServer*> all_others() const {
    std::vector<const ToyShardServer*> all;
    for (const auto& other : others) all.push_back(other.get());
    return all;
  }
  [[nodiscard]] LinkOptions link(int worker) const {
    LinkOptions options = toy_link(lead->port(), worker);
    options.others = addresses();
    return options;
  }
  void run(int workers) {
    lead->start();
    std::vector<std::thread> threads;
    for (int w = 0; w < workers; ++w) threads.emplace_back([this, w] { work(link(w)); });
    for (std::thread& thread : threads) thread.join();
    lead->join();
    for (auto& other : others) other->join();
  }

  std::vector<std::unique_ptr<ToyShardServer>> others;
  std::unique_ptr<ToyServer> lead;
};

class SeveralServers : public testing::TestWithParam<int> {};

TEST_P(SeveralServers, LearnWhatOneDoes) {
  constexpr std::int64_t kUpdates = 40;
  Together together(GetParam(), preset_policy("bsp", 3), kUpdates);
  together.run(3);
  EXPECT_FALSE(together.lead->failure);
  for (const auto& other : together.others) {
    EXPECT_EQ(other->failure, "");
    ASSERT_TRUE(other->server().over()) << "they are told that the run is over";
    EXPECT_EQ(other->server().over()->code, 0);
    EXPECT_EQ(other->server().keeper()->version(), kUpdates);
  }
  const at::Tensor weights = in_order(*together.lead, together.all_others());
  EXPECT_LE((weights - bulk_synchronous_by_hand(3, kUpdates)).abs().max().item<double>(), 1e-12);
  expect_whole_epochs(*together.lead);
}

INSTANTIATE_TEST_SUITE_P(Servers, SeveralServers, testing::Values(1, 2, 3, 4, 5));  // the fifth has no elements

// One worker, so that each update is of the newest weights: plain gradient steps with momentum.
TEST(ShardServerTest, AsynchronousUpdatesOfOneWorkerArePlainSteps) {
  constexpr std::int64_t kUpdates = 60;
  Together together(3, preset_policy("asp", 1), kUpdates);
  together.run(1);
  EXPECT_FALSE(together.lead->failure);
  const at::Tensor weights = in_order(*together.lead, together.all_others());
  EXPECT_LE((weights - bulk_synchronous_by_hand(1, kUpdates)).abs().max().item<double>(), 1e-12);
}

TEST(ShardServerTest, TheStateOfACheckpointHasAllShards) {
  constexpr std::int64_t kUpdates = 9;
  Together together(3, preset_policy("bsp", 2), kUpdates, [](NetworkOptions& options) {
    options.wants_state = [](const ServerProgress&, const ServerProgress& after) { return after.version == 5; };
  });
  together.run(2);
  std::vector<std::int64_t> with_state;
  for (const NetworkUpdate& update : together.lead->updates) {
    if (!update.state) continue;
    const std::int64_t version = update.done.update.version;
    with_state.push_back(version);
    const Layout& layout = together.lead->server().layout();
    const at::Tensor weights = at::cat(from_shards(layout, update.state->weights.shards));
    EXPECT_LE((weights - bulk_synchronous_by_hand(2, version)).abs().max().item<double>(), 1e-12);
    ASSERT_EQ(update.state->optimizer.size(), 1u);
    EXPECT_EQ(update.state->optimizer[0].second.size(), layout.shards.size());
  }
  EXPECT_EQ(with_state, (std::vector<std::int64_t>{5, kUpdates}));
}

class NoJournal : public PushJournal {
 public:
  void write_push(const CommittedPush&) override {}
  void write_update(const UpdateRecord&) override {}
  void begin(const Weights&, const std::vector<CommittedPush>&) override {}
  [[nodiscard]] bool must_make_durable() const override { return false; }
  void make_durable() override {}
};

// With logs they hear of the end once all is saved. Evaluations before that may take long: without a sign of life they
// gave the lead server up, though the run was done.
TEST(ShardServerTest, TheLeadShowsThatItLivesUntilAllIsSaved) {
  NoJournal journal;
  ToyShardServer other({}, [](ShardServerOptions& options) { options.peer_timeout = 2'000'000'000; });
  ToyServer lead(preset_policy("asp", 1), 5, 2, [&](NetworkOptions& options) { options.journal = &journal; },
                 std::nullopt, nullptr, {other.address()});
  lead.start();
  LinkOptions link = toy_link(lead.port(), 0);
  link.others = {other.address()};
  work(link);
  lead.join();
  EXPECT_FALSE(lead.failure);
  for (const Nanoseconds until = now_ns() + 3'000'000'000; now_ns() < until;)  // more than the silence
    ASSERT_TRUE(lead.keep_alive_for_others(50'000'000));
  lead.links().front()->end({});
  other.join();
  EXPECT_EQ(other.failure, "");
  EXPECT_TRUE(other.server().over());
}

// Of the incarnations of parts the lead keeps a list, which is as long as they are many.
TEST(ShardServerTest, PartsThatCannotBeAreNoMessage) {
  const auto is_read = [](const PushKey& push) {
    return shards_to_lead(header_of(ShardsHere{.process_id = "s", .parts = {{WorkerId{0}, 1, 1}, push}})).has_value();
  };
  EXPECT_TRUE(is_read({WorkerId{3}, 1000, 1'000'000}));
  for (const PushKey& push : {PushKey{WorkerId{3}, 0, 1}, PushKey{WorkerId{3}, -1, 1}, PushKey{WorkerId{3}, 1 << 30, 1},
                              PushKey{WorkerId{3}, 1, 0}, PushKey{WorkerId{-1}, 1, 1}})
    EXPECT_FALSE(is_read(push)) << push.incarnation;
}

// Between all pairs of them.
TEST(ShardServerTest, LostMessagesAreSentAgain) {
  if (!sluice::test::runs_long_tests()) GTEST_SKIP() << "long: 6 s; compressed_test.cpp loses messages of two servers";
  constexpr std::int64_t kUpdates = 25;
  constexpr double kLoss = 0.15;
  ToyShardServer first, second;
  LossyWire lead_to_first(first.address().port, kLoss), lead_to_second(second.address().port, kLoss);
  const auto at = [](const LossyWire& wire) { return ServerAddress{"127.0.0.1", wire.port()}; };
  const auto be_patient = [](NetworkOptions& options) {
    options.peer_timeout = 5'000'000'000;
    options.drain_timeout = 3'000'000'000;  // the last word of a worker may be lost
  };
  ToyServer lead(preset_policy("bsp", 2), kUpdates, 3, be_patient, std::nullopt, nullptr,
                 {at(lead_to_first), at(lead_to_second)});
  lead.start();
  LossyWire to_lead(lead.port(), kLoss), to_first(first.address().port, kLoss), to_second(second.address().port, kLoss);
  std::vector<std::thread> threads;
  for (int w = 0; w < 2; ++w) {
    threads.emplace_back([&, w] {
      LinkOptions options = toy_link(to_lead.port(), w);
      options.others = {at(to_first), at(to_second)};
      options.peer_timeout = 10'000'000'000;
      work_to_the_end(options);
    });
  }
  lead.join();
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(lead.failure);
  for (const WorkerEvent& event : lead.events) {
    const bool is_usual = event.what == WorkerEvent::What::kJoined || event.what == WorkerEvent::What::kLeft;
    EXPECT_TRUE(is_usual) << static_cast<int>(event.worker) << ": " << event.why;
  }
  const auto joinings = std::ranges::count(lead.events, WorkerEvent::What::kJoined, &WorkerEvent::what);
  EXPECT_EQ(joinings, 2) << "once each";
  EXPECT_GT(to_first.lost() + to_second.lost() + lead_to_first.lost() + lead_to_second.lost(), 10);
  first.halt();
  second.halt();
  const at::Tensor weights = in_order(lead, {&first, &second});
  EXPECT_LE((weights - bulk_synchronous_by_hand(2, kUpdates)).abs().max().item<double>(), 1e-12);
}

TEST(ShardServerTest, WithALogOneThatIsKilledGoesOn) {
  constexpr std::int64_t kUpdates = 150;
  const TempDir dir;
  ToyShardServer other(dir.path() / "servers-1");
  ToyServer lead(preset_policy("bsp", 2), kUpdates, 2, [](NetworkOptions& its) { its.peer_timeout = 5'000'000'000; },
                 std::nullopt, nullptr, {other.address()});
  lead.start();
  std::vector<std::thread> threads;
  for (int w = 0; w < 2; ++w) {
    threads.emplace_back([&, w] {
      LinkOptions options = toy_link(lead.port(), w);
      options.others = {other.address()};
      work(options);
    });
  }
  for (int kill = 0; kill < 6; ++kill) {
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    other.kill();
    other.start();
  }
  for (std::thread& thread : threads) thread.join();
  lead.join();
  other.join();
  EXPECT_FALSE(lead.failure);
  EXPECT_EQ(other.failure, "");
  EXPECT_LE((in_order(lead, {&other}) - bulk_synchronous_by_hand(2, kUpdates)).abs().max().item<double>(), 1e-12);
}

// A server that has been met by a lead which is busy, and looks at nothing, while that server fails.
class Failing : public testing::Test {
 protected:
  void SetUp() override {
    link_.emplace(ShardLinkOptions{.host = "127.0.0.1",
                                   .port = server_.port(),
                                   .where = "test",
                                   .assignment = {toy_layout(2), shards_of_server(toy_layout(2), 1, 2)},
                                   .run = "toy",
                                   .heartbeat_interval = kHeartbeatInterval});
    for (int i = 0; i < 500 && !link_->is_here(); ++i) {
      link_->look();
      server_.next(10'000'000);
    }
    ASSERT_TRUE(link_->is_here());
  }

  ShardServer server_{
      {.optimizer = {.kind = "sgd"}, .heartbeat_interval = kHeartbeatInterval, .drain_timeout = 20'000'000'000}};
  std::optional<ShardLink> link_;
};

TEST_F(Failing, IsHeardByALeadThatIsBusy) {
  std::thread failing([&] { server_.fail(StorageError("the disk is full")); });
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));  // a lead without a connection has gone after 2 s
  std::string failure;
  for (int i = 0; i < 500 && failure.empty(); ++i) {
    try {
      link_->look();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    } catch (const PeerError& error) {
      failure = error.what();
    }
  }
  EXPECT_THAT(failure, testing::HasSubstr("has failed: the disk is full"));
  link_->end({.code = 5});
  failing.join();
  EXPECT_TRUE(server_.over()) << "it has waited to the end, though it was heard";
}

TEST_F(Failing, WaitsForNoLeadThatHasGone) {
  if (!sluice::test::runs_long_tests()) GTEST_SKIP() << "long: it waits for 2 s";
  link_.reset();
  const Nanoseconds begun = now_ns();
  server_.fail(StorageError("the disk is full"));
  EXPECT_FALSE(server_.over());
  EXPECT_LT(to_s(now_ns() - begun), 15) << "of the 20 for one that is there";
}

// Only the connection, the incarnation and the server epoch that the lead server has told it of.
TEST(ShardServerTest, APartIsItsWorkersOwn) {
  ToyShardServer other;
  ToyServer lead(preset_policy("bsp", 1), 3, 2, {}, std::nullopt, nullptr, {other.address()});
  lead.start();
  FrameSocket to_lead(FrameSocket::Role::kConnecting, "worker", kFromServers);
  FrameSocket own(FrameSocket::Role::kConnecting, "worker", kFromServers);
  FrameSocket thief(FrameSocket::Role::kConnecting, "thief", kFromServers);
  to_lead.connect("127.0.0.1", lead.port());
  own.connect("127.0.0.1", other.address().port);
  thief.connect("127.0.0.1", other.address().port);
  std::int64_t server_epoch = 0;
  for (int i = 0; i < 500 && server_epoch == 0; ++i) {
    to_lead.send({}, {header_of(Hello{.worker = WorkerId{0}, .process_id = "s", .where = "here", .batch = kLease})});
    to_lead.send({}, {header_of(WorkerAgain{})});  // the weights, which may have come before the connection was there
    own.wait(std::chrono::milliseconds(20));
    while (auto received = own.next()) {
      const auto message = shards_to_worker(received->frames.front());
      if (message && std::holds_alternative<WeightsPart>(*message))
        server_epoch = std::get<WeightsPart>(*message).incarnation.server_epoch;
    }
  }
  ASSERT_GE(server_epoch, 1);
  const Layout layout = toy_layout(2);
  const auto send = [&](FrameSocket& from, const PushKey& push, std::int64_t of_server_epoch) {
    const Tensors part{.shards = {at::ones({layout.shards[1].elements}, at::kDouble)},
                       .statistics = at::empty({0}, at::kDouble)};
    const PartMade made{.push = push, .first_shard = 1, .server_epoch = of_server_epoch};
    while (!from.send({}, with_tensors(header_of(made), part))) from.wait_to_send(std::chrono::seconds(1), -1);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  };
  send(thief, {WorkerId{0}, 1, 7}, server_epoch);
  send(own, {WorkerId{0}, 2, 1}, server_epoch);
  send(own, {WorkerId{0}, 1, 6}, server_epoch + 1);
  send(own, {WorkerId{0}, 1, 1}, server_epoch);
  lead.kill();
  other.halt();
  const auto parts = other.server().keeper()->parts();
  ASSERT_EQ(parts.size(), 1U);
  EXPECT_EQ(parts[0].first, (PushKey{WorkerId{0}, 1, 1}));
}

// A worker's messages to a shard server may take longer than server 0 needs to die and begin again. That one counts
// incarnations, pushes and leases as its predecessor did, and the worker has not run as much of the same lease
// (ps.time_limit_s).
class LateMessages : public testing::TestWithParam<bool> {
 protected:
  static void push(NetworkLink& link, Push push, bool is_ahead) {
    if (!is_ahead) return link.push(std::move(push));
    for (std::size_t s = 0; s < push.tensors.shards.size(); ++s) {
      const at::Tensor& shard = push.tensors.shards[s];
      link.push_ahead(s, {{0, shard.numel()}}, shard.clone());
    }
    push.tensors.shards.clear();
    link.push(std::move(push));
  }
};

TEST_P(LateMessages, OfAnEarlierServersTimeAreInNoPush) {
  constexpr std::int64_t kUpdates = 3;
  ToyShardServer other;
  int port = 0;
  const auto begin = [&] {
    auto lead = std::make_unique<ToyServer>(
        preset_policy("bsp", 1), kUpdates, 2,
        [&](NetworkOptions& options) {
          options.port = port;
          options.peer_timeout = 5'000'000'000;
        },
        std::nullopt, nullptr, std::vector{other.address()});
    port = lead->port();
    lead->start();
    return lead;
  };
  auto lead = begin();
  LossyWire wire(other.address().port, /*loss=*/0);
  LinkOptions options = toy_link(port, 0);
  options.others = {{"127.0.0.1", wire.port()}};
  NetworkLink link(options);
  Tensors weights = room_for(link.layout());
  const auto first = link.next_lease();
  const std::int64_t version = link.pull(weights);
  wire.hold();
  push(link, toy_push(version, weights, {first->samples[0]}), GetParam());
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // it has left
  lead->kill();
  lead.reset();
  lead = begin();
  while (const auto lease = link.next_lease()) {
    try {
      const std::int64_t base = link.pull(weights);
      wire.release();
      push(link, toy_push(base, weights, lease->samples), GetParam());
    } catch (const StepIsVoid&) {
    }
  }
  link.leave();
  lead->join();
  other.join();
  EXPECT_FALSE(lead->failure);
  EXPECT_EQ(lead->updates[0].pushes[0].record.key(), (PushKey{WorkerId{0}, 1, 1})) << "as before";
  EXPECT_LE((in_order(*lead, {&other}) - bulk_synchronous_by_hand(1, kUpdates)).abs().max().item<double>(), 1e-12);
}

INSTANTIATE_TEST_SUITE_P(IsAhead, LateMessages, testing::Bool());

// Each part before its server says that it holds it, and each step: a lead without a log makes nothing durable itself.
TEST(ShardServerTest, WhatOutlivesTheMachineIsMadeDurablePartByPart) {
  constexpr std::int64_t kUpdates = 10;
  const TempDir dir;
  ToyShardServer other(dir.path() / "servers-1",
                       [](ShardServerOptions& options) { options.outlives = storage::Outlives::kMachine; });
  ToyServer lead(preset_policy("asp", 1), kUpdates, 2, {}, std::nullopt, nullptr, {other.address()});
  const std::int64_t before = shard_log_syncs;
  lead.start();
  LinkOptions options = toy_link(lead.port(), 0);
  options.others = {other.address()};
  work(options);
  lead.join();
  other.join();
  EXPECT_FALSE(lead.failure);
  EXPECT_GE(shard_log_syncs - before, 2 * kUpdates);
}

}  // namespace
}  // namespace sluice::ps::test
