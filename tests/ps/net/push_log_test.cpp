// Servers that keep a log and die, over real sockets: what their workers were told of counts, and counts once.
#include "ps/net/push_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <utility>

#include "core/error.h"
#include "ps/net/log_recovery.h"
#include "ps/net/toy_shards.h"
#include "support/files.h"
#include "support/long_tests.h"

namespace sluice::ps::test {
namespace {

struct Logged {
  std::filesystem::path folder;
  storage::Outlives outlives = storage::Outlives::kProcess;
  std::unique_ptr<PushLog> log;
  std::vector<NetworkUpdate> again;  // that were made once more

  void prepare(Server& server, data::Ledger& ledger, NetworkOptions& options) {
    const PushLogOptions how{.folder = folder, .outlives = outlives};
    options.committed_before =
        LogRecovery(how, 0).into({.server = server, .ledger = ledger, .on_update = [this](NetworkUpdate update) {
                                    again.push_back(std::move(update));
                                  }});
    log = std::make_unique<PushLog>(how, server.layout());
    log->begin(server.weights(), options.committed_before);
    options.journal = log.get();
  }
};

// The pushes of all updates, in their order, of which none is left out.
std::vector<PushRecord> all_told(const Logged& logged, const ToyServer& server) {
  std::vector<PushRecord> pushes;
  std::int64_t version = 0;
  for (const auto* updates : {&logged.again, &server.updates}) {
    for (const NetworkUpdate& update : *updates) {
      EXPECT_EQ(update.done.update.version, ++version);
      for (const PushDone& push : update.pushes) pushes.push_back(push.record);
    }
  }
  return pushes;
}

// A server that dies three times at once, without a word, with workers that go on.
void expect_a_server_that_dies_loses_nothing(const SyncPolicy& policy, storage::Outlives outlives) {
  const sluice::test::TempDir dir;
  constexpr std::int64_t kUpdates = 150;
  std::atomic<int> steps = 0;
  const auto a_while = [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ++steps;
  };
  std::vector<std::thread> threads;
  int port = 0;
  std::vector<PushRecord> before;  // by servers that died, in their order
  for (int incarnation = 0; incarnation < 4; ++incarnation) {
    Logged logged{.folder = dir.path(), .outlives = outlives};
    ToyServer server(
        policy, kUpdates, 2, [&](NetworkOptions& options) { options.port = port; }, std::nullopt,
        [&](Server& s, data::Ledger& l, NetworkOptions& options) { logged.prepare(s, l, options); });
    port = server.port();
    server.start();
    if (incarnation == 0) {
      for (int w = 0; w < policy.workers; ++w)
        threads.emplace_back([&, w] { work(toy_link(port, w), 1 << 30, a_while); });
    }
    if (incarnation < 3) {
      while (steps < 30 * (incarnation + 1)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      server.kill();
    } else {
      for (std::thread& thread : threads) thread.join();
      server.join();
    }
    const std::vector<PushRecord> now = all_told(logged, server);
    ASSERT_LE(before.size(), now.size());
    EXPECT_TRUE(std::equal(before.begin(), before.end(), now.begin())) << "what was told once is told again";
    before = now;
    if (incarnation < 3) continue;
    expect_whole_epochs(server);
    EXPECT_EQ(server.server().progress().version, kUpdates);
  }
  std::set<PushKey> seen;
  for (const PushRecord& record : before)
    EXPECT_TRUE(seen.insert({record.worker, record.incarnation, record.sequence}).second) << "a push counts once";
  EXPECT_TRUE(std::ranges::any_of(before, [](const PushRecord& record) { return record.incarnation > 1; }))
      << "it died";
}

TEST(PushLogNetwork, AServerThatDiesLosesNoPushAndCountsNoneTwice) {
  expect_a_server_that_dies_loses_nothing(preset_policy("asp", 3), storage::Outlives::kProcess);
}
TEST(PushLogNetwork, NorDoesOneWhosePushesOutliveTheMachine) {
  expect_a_server_that_dies_loses_nothing(preset_policy("asp", 3), storage::Outlives::kMachine);
}
TEST(PushLogNetwork, NorOneThatWaitsForMostOfItsWorkers) {
  if (!sluice::test::runs_long_tests()) GTEST_SKIP() << "long: CI kills servers of two other kinds";
  expect_a_server_that_dies_loses_nothing(preset_policy("quorum", 3), storage::Outlives::kMachine);
}

TEST(PushLogNetwork, BulkSynchronousTrainingGoesOnAsIfNothingHadHappened) {
  const sluice::test::TempDir dir;
  constexpr std::int64_t kUpdates = 40;
  const auto a_while = [] { std::this_thread::sleep_for(std::chrono::milliseconds(10)); };
  std::vector<std::thread> threads;
  int port = 0;
  for (int incarnation = 0; incarnation < 3; ++incarnation) {
    Logged logged{.folder = dir.path()};
    ToyServer server(
        preset_policy("bsp", 3), kUpdates, 2, [&](NetworkOptions& options) { options.port = port; }, std::nullopt,
        [&](Server& s, data::Ledger& l, NetworkOptions& options) { logged.prepare(s, l, options); });
    port = server.port();
    server.start();
    for (int w = 0; w < 3 && incarnation == 0; ++w)
      threads.emplace_back([&, w] { work(toy_link(port, w), 1 << 30, a_while); });
    if (incarnation < 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(150));
      server.kill();
      continue;
    }
    for (std::thread& thread : threads) thread.join();
    server.join();
    EXPECT_LE((in_order(server) - bulk_synchronous_by_hand(3, kUpdates)).abs().max().item<double>(), 1e-12);
  }
}

// What a journal sees of the first push's acknowledgement.
class WatchfulJournal : public PushJournal {
 public:
  void write_push(const CommittedPush&) override {
    ++pushes;
    if (pushes > fails_after) throw StorageError("the disk is full");
    look();
  }
  void write_update(const UpdateRecord&) override {}
  void begin(const Weights&, const std::vector<CommittedPush>&) override {}
  [[nodiscard]] bool must_make_durable() const override { return must_be_durable; }
  void make_durable() override {
    if (pushes > sync_fails_after) throw StorageError("the disk is full");
    look();
  }
  void look() {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    if (pushes == 1 && link != nullptr && link.load()->last_send_s() > 0) was_early = true;
  }

  bool must_be_durable = false;
  int fails_after = 1 << 30, sync_fails_after = 1 << 30;
  int pushes = 0;
  std::atomic<NetworkLink*> link = nullptr;
  std::atomic<bool> was_early = false;
};

TEST(PushLogNetwork, AWorkerHearsOfItsPushWhenItIsWrittenAndDurable) {
  for (const bool must_be_durable : {false, true}) {
    WatchfulJournal journal;
    journal.must_be_durable = must_be_durable;
    ToyServer server(preset_policy("asp", 1), 100, 2, [&](NetworkOptions& options) { options.journal = &journal; });
    server.start();
    NetworkLink link(toy_link(server.port(), 0));
    journal.link = &link;
    Tensors weights = room_for(link.layout());
    for (int step = 0; step < 3; ++step) {
      const auto lease = link.next_lease();
      const std::int64_t version = link.pull(weights);
      send(link, toy_push(version, weights, lease->samples));
    }
    ASSERT_TRUE(link.next_lease());
    EXPECT_GT(link.last_send_s(), 0);
    EXPECT_FALSE(journal.was_early);
    server.stop();
    EXPECT_EQ(journal.pushes, 3);
  }
}

TEST(PushLogNetwork, APushThatCannotBeWrittenIsNotAcknowledgedAndEndsTheRun) {
  for (const bool must_be_durable : {false, true}) {
    WatchfulJournal journal;
    journal.must_be_durable = must_be_durable;
    (must_be_durable ? journal.sync_fails_after : journal.fails_after) = 0;
    ToyServer server(preset_policy("asp", 1), 100, 2, [&](NetworkOptions& options) { options.journal = &journal; });
    server.start();
    NetworkLink link(toy_link(server.port(), 0));
    Tensors weights = room_for(link.layout());
    const auto lease = link.next_lease();
    const std::int64_t version = link.pull(weights);
    send(link, toy_push(version, weights, lease->samples));
    EXPECT_THROW((void)link.next_lease(), PeerError);
    EXPECT_EQ(link.last_send_s(), 0) << "acknowledged";
    server.join();
    ASSERT_TRUE(server.failure);
    EXPECT_THROW(std::rethrow_exception(server.failure), StorageError);
  }
}

// Counts the decisions that are durable when the server goes on.
class JournalOfDecisions final : public PushJournal {
 public:
  void write_push(const CommittedPush&) override {}
  void write_update(const UpdateRecord&) override { ++written; }
  void begin(const Weights&, const std::vector<CommittedPush>&) override {}
  [[nodiscard]] bool must_make_durable() const override { return false; }
  void make_durable() override { durable += std::exchange(written, 0); }

  std::int64_t written = 0, durable = 0;
};

// Otherwise another server's log could hold a step that a restarted lead server does not know.
TEST(PushLogNetwork, ADecisionIsDurableBeforeOtherServersReceiveIt) {
  constexpr std::int64_t kUpdates = 5;
  JournalOfDecisions journal;
  ToyShardServer other;
  ToyServer lead(preset_policy("asp", 1), kUpdates, 2, [&](NetworkOptions& options) { options.journal = &journal; },
                 std::nullopt, nullptr, {other.address()});
  lead.start();
  LinkOptions options = toy_link(lead.port(), 0);
  options.others = {other.address()};
  work(options);
  lead.join();
  EXPECT_FALSE(lead.failure);
  EXPECT_EQ(journal.durable, kUpdates);
}

}  // namespace
}  // namespace sluice::ps::test
