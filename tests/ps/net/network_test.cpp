// A parameter server and workers that are threads, over real sockets: what they learn beside a server that is called
// directly, and what becomes of workers that die, pause, come twice or lose messages.
#include "ps/net/toy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "core/error.h"

namespace sluice::ps::test {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

class Network : public testing::TestWithParam<int> {};

TEST_P(Network, BulkSynchronousWorkersLearnWhatOneDoesFromAllTheirSamples) {
  const int workers = GetParam();
  constexpr std::int64_t kUpdates = 30;
  ToyServer server(preset_policy("bsp", workers), kUpdates, /*shards=*/3);
  server.start();
  std::vector<std::thread> threads;
  for (int w = 0; w < workers; ++w) threads.emplace_back([&, w] { work(toy_link(server.port(), w)); });
  for (std::thread& thread : threads) thread.join();
  server.join();
  EXPECT_FALSE(server.failure);
  ASSERT_EQ(server.updates.size(), kUpdates);
  EXPECT_LE((in_order(server) - bulk_synchronous_by_hand(workers, kUpdates)).abs().max().item<double>(), 1e-12);
  for (std::int64_t u = 0; u < kUpdates; ++u) {
    const NetworkUpdate& update = server.updates[u];
    EXPECT_EQ(update.done.update.version, u + 1);
    ASSERT_EQ(update.pushes.size(), static_cast<std::size_t>(workers));
    for (const PushDone& push : update.pushes) EXPECT_EQ(push.staleness, 0);
    EXPECT_EQ(update.state.has_value(), u + 1 == kUpdates) << "copies are made of the last one only";
  }
  expect_whole_epochs(server);
}
INSTANTIATE_TEST_SUITE_P(Workers, Network, testing::Values(1, 2, 5));

TEST(NetworkTest, EachUpdateTellsWhenTheFirstWorkerBegan) {
  ToyServer server(preset_policy("asp", 1), 3);
  server.start();
  const Nanoseconds before = now_ns();
  work(toy_link(server.port(), 0));
  server.join();
  ASSERT_EQ(server.updates.size(), 3U);
  for (const NetworkUpdate& update : server.updates) {
    EXPECT_GE(update.open_since, before);
    EXPECT_LE(update.open_since, server.updates.front().at);
  }
}

TEST(NetworkTest, AWorkerIsToldTheConstantsOfTheRunBeforeItsFirstStep) {
  const auto with_constants = [](NetworkOptions& options) { options.constants = "of the run"; };
  ToyServer server(preset_policy("asp", 1), 2, /*shards=*/1, with_constants);
  server.start();
  LinkOptions options = toy_link(server.port(), 0);
  std::string received;
  options.take_constants = [&](const std::string& text) { received = text; };
  work(std::move(options), 2, [&] { EXPECT_EQ(received, "of the run"); });
  server.join();
  EXPECT_EQ(received, "of the run");
}

TEST(NetworkTest, AsynchronousWorkersEachUpdateAlone) {
  ToyServer server(preset_policy("asp", 3), 60);
  server.start();
  std::vector<std::thread> threads;
  for (int w = 0; w < 3; ++w) threads.emplace_back([&, w] { work(toy_link(server.port(), w)); });
  for (std::thread& thread : threads) thread.join();
  server.join();
  EXPECT_FALSE(server.failure);
  ASSERT_EQ(server.updates.size(), 60U);
  for (const NetworkUpdate& update : server.updates) {
    ASSERT_EQ(update.pushes.size(), 1U);
    EXPECT_EQ(update.pushes[0].staleness, update.done.update.version - 1 - update.pushes[0].record.base_version);
    EXPECT_GE(update.pushes[0].staleness, 0);
  }
  expect_whole_epochs(server);
}

// The checker reads the records only: which push was in which update, and with which weights it had begun.
TEST(NetworkTest, StaleSynchronousWorkersStayWithinTheirBound) {
  constexpr std::int64_t kBound = 2;
  SyncPolicy policy = preset_policy("ssp", 3);
  policy.staleness = kBound;
  ToyServer server(policy, 90);
  server.start();
  std::vector<std::thread> threads;
  for (int w = 0; w < 3; ++w) {
    threads.emplace_back([&, w] {
      work(toy_link(server.port(), w), 1 << 30, [w] { std::this_thread::sleep_for(std::chrono::milliseconds(w * 2)); });
    });
  }
  for (std::thread& thread : threads) thread.join();
  server.join();
  ASSERT_EQ(server.updates.size(), 90U);
  std::map<WorkerId, std::int64_t> clock{{WorkerId{0}, 0}, {WorkerId{1}, 0}, {WorkerId{2}, 0}};
  std::vector<std::map<WorkerId, std::int64_t>> clocks{clock};  // [version]
  for (const NetworkUpdate& update : server.updates) {
    const PushRecord& record = update.pushes.at(0).record;
    const auto& when_it_began = clocks.at(record.base_version);
    std::int64_t slowest = when_it_began.begin()->second;
    for (const auto& [worker, pushes] : when_it_began) slowest = std::min(slowest, pushes);
    EXPECT_LE(when_it_began.at(record.worker) - slowest, kBound);
    ++clock[record.worker];
    clocks.push_back(clock);
  }
  EXPECT_TRUE(std::ranges::any_of(clocks, [](auto& at) { return at[WorkerId{0}] > at[WorkerId{2}] + 1; }))
      << "the fast one was ahead at times";
}

TEST(NetworkTest, AWorkerThatDiesIsGivenUpAndItsSamplesComeBack) {
  ToyServer server(preset_policy("bsp", 3), 40, 2,
                   [](NetworkOptions& options) { options.peer_timeout = kShortPeerTimeout; });
  server.start();
  std::vector<std::thread> threads;
  for (int w = 0; w < 2; ++w) threads.emplace_back([&, w] { work(toy_link(server.port(), w)); });
  {
    NetworkLink link(toy_link(server.port(), 2));
    Tensors weights = room_for(link.layout());
    for (int step = 0; step < 5; ++step) {
      const auto lease = link.next_lease();
      const std::int64_t version = link.pull(weights);
      send(link, toy_push(version, weights, lease->samples));
    }
    ASSERT_TRUE(link.next_lease());
    ASSERT_EQ(link.pull(weights), 5);
  }  // without a word
  for (std::thread& thread : threads) thread.join();
  server.join();
  EXPECT_FALSE(server.failure);
  ASSERT_EQ(server.updates.size(), 40U);
  EXPECT_EQ(server.updates[4].pushes.size(), 3U);
  EXPECT_EQ(server.updates[5].pushes.size(), 2U);
  const auto lost = std::ranges::find(server.events, WorkerEvent::What::kLost, &WorkerEvent::what);
  ASSERT_NE(lost, server.events.end());
  EXPECT_EQ(lost->worker, WorkerId{2});
  EXPECT_THAT(lost->why, HasSubstr("no sign of life"));
  EXPECT_GE(server.ledger().epochs_over(), 2);
  expect_whole_epochs(server);
}

// As anytime workers do: the samples that they had no time for are handed out again, to be pushed once.
TEST(NetworkTest, WhatWasLeasedAndNotPushedComesBack) {
  ToyServer server(preset_policy("asp", 1), 100);
  server.start();
  std::map<std::pair<std::int64_t, std::int64_t>, int> pushed;  // by epoch and sample
  {
    NetworkLink link(toy_link(server.port(), 0));
    Tensors weights = room_for(link.layout());
    for (int step = 0; auto lease = link.next_lease(); ++step) {
      const std::int64_t version = link.pull(weights);
      lease->samples.resize(1 + static_cast<std::size_t>(step) % lease->samples.size());
      for (const std::int64_t sample : lease->samples) ++pushed[{lease->epoch, sample}];
      send(link, toy_push(version, weights, lease->samples));
      if (step == 99) break;
    }
    link.leave();
  }
  server.join();
  ASSERT_EQ(server.updates.size(), 100U);
  expect_whole_epochs(server);
  ASSERT_GE(server.ledger().epochs_over(), 2);
  for (const auto& [which, times] : pushed) EXPECT_EQ(times, 1) << which.first << " " << which.second;
  for (std::int64_t sample = 0; sample < kSamples; ++sample) EXPECT_EQ((pushed[{0, sample}]), 1) << sample;
}

TEST(NetworkTest, AWorkerThatComesBackTakesItsPlaceAndCountsAnew) {
  ToyServer server(preset_policy("asp", 2), 50);
  server.start();
  std::thread other([&] {
    work(toy_link(server.port(), 0), 1 << 30, [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); });
  });
  {
    NetworkLink link(toy_link(server.port(), 1));
    ASSERT_TRUE(link.next_lease());
  }  // dies
  EXPECT_GT(work(toy_link(server.port(), 1)), 0)
      << "its number is free as soon as the old one is silent for four beats";
  other.join();
  server.join();
  std::set<int> incarnations;
  for (const NetworkUpdate& update : server.updates) {
    if (update.pushes[0].record.worker == WorkerId{1}) incarnations.insert(update.pushes[0].record.incarnation);
  }
  EXPECT_EQ(incarnations, std::set{2});
  expect_whole_epochs(server);
}

TEST(NetworkTest, AStepOfAWorkerThatWasGivenUpCountsForNothing) {
  ToyServer server(preset_policy("asp", 1), 30, 2,
                   [](NetworkOptions& options) { options.peer_timeout = kShortPeerTimeout; });
  server.start();
  LinkOptions options = toy_link(server.port(), 0);
  int voids = 0;
  {
    // A worker that is silent for longer than the server waits, but lives: its heartbeats are too far apart.
    options.heartbeat_interval = 2'000'000'000;
    NetworkLink link(options);
    Tensors weights = room_for(link.layout());
    for (int step = 0; step < 3; ++step) {
      const auto lease = link.next_lease();
      ASSERT_TRUE(lease);
      try {
        const std::int64_t version = link.pull(weights);
        if (step == 1) std::this_thread::sleep_for(std::chrono::milliseconds(700));
        send(link, toy_push(version, weights, lease->samples));
      } catch (const StepIsVoid&) {
        ++voids;
      }
    }
    link.leave();
  }
  server.stop();
  // Three steps began, the second was given up: the server counts what it has taken, each sample once.
  std::int64_t examples = 0;
  for (const NetworkUpdate& update : server.updates) examples += update.pushes[0].record.examples;
  const data::LedgerCounts counts = server.ledger().counts(0);
  EXPECT_EQ(counts.pushed, examples);
  EXPECT_EQ(counts.waiting + counts.leased + counts.pushed, kSamples);
  EXPECT_GE(server.events.size(), 3U) << "joined, lost, joined";
  EXPECT_LT(examples, 3 * kLease);
}

// Of these servers' heartbeats four without a sign of the first worker would make room for the second.
void send_heartbeats_slowly(NetworkOptions& options) { options.heartbeat_interval = 2'000'000'000; }

TEST(NetworkTest, TwoWorkersOfOneNumberAreRefused) {
  ToyServer server(preset_policy("asp", 1), 1'000'000, 1, send_heartbeats_slowly);
  server.start();
  NetworkLink first(toy_link(server.port(), 0));
  try {
    NetworkLink second(toy_link(server.port(), 0));
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("has a worker 0 already (test); give each its own number"));
  }
}

TEST(NetworkTest, WhoWaitsForAWorkersNumberHearsThatTheRunIsOver) {
  ToyServer server(preset_policy("asp", 1), 30, 2, send_heartbeats_slowly);
  server.start();
  std::thread first([&] {
    work(toy_link(server.port(), 0), 1 << 30, [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); });
  });
  while (server.updates_told < 5) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  LinkOptions options = toy_link(server.port(), 0);
  options.rival_timeout = options.connect_timeout;
  try {
    NetworkLink second(options);
    ADD_FAILURE();
  } catch (const PeerError& error) {
    EXPECT_THAT(error.what(), HasSubstr("is over; its worker 0 was test; give each its own number"));
  }
  first.join();
}

TEST(NetworkTest, AnotherConfigurationIsRefusedWithItsKey) {
  ToyServer server(preset_policy("asp", 1), 5, 1, [](NetworkOptions& options) {
    options.agreement = {{"train.lr", "0.1"}, {"the version of Sluice", "1"}};
  });
  server.start();
  LinkOptions options = toy_link(server.port(), 0);
  options.agreement = {{"train.lr", "0.2"}, {"the version of Sluice", "1"}};
  try {
    NetworkLink link(options);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(
        error.what(),
        MatchesRegex(".*train.lr is 0.2 at worker [0-9] .*, but 0.1 at server 0 .127.0.0.1:[0-9]+.; make them equal"));
  }
}

TEST(NetworkTest, WithoutAServerAWorkerGivesUp) {
  LinkOptions options = toy_link(1, 0);
  options.connect_timeout = 300'000'000;
  try {
    NetworkLink link(options);
    FAIL();
  } catch (const PeerError& error) {
    EXPECT_THAT(error.what(), HasSubstr("no parameter server has answered at 127.0.0.1:1 within"));
  }
}

TEST(NetworkTest, WithoutWorkersAServerGivesUp) {
  ToyServer server(preset_policy("bsp", 2), 5, 1,
                   [](NetworkOptions& options) { options.connect_timeout = 300'000'000; });
  server.start();
  server.join();
  ASSERT_TRUE(server.failure);
  EXPECT_THROW(std::rethrow_exception(server.failure), PeerError);
}

TEST(NetworkTest, TrainingBeginsWithoutThoseWhoDoNotCome) {
  ToyServer server(preset_policy("bsp", 3), 5, 1,
                   [](NetworkOptions& options) { options.connect_timeout = 300'000'000; });
  server.start();
  EXPECT_EQ(work(toy_link(server.port(), 1)), 5);
  server.join();
  EXPECT_FALSE(server.failure);
  EXPECT_EQ(server.updates.size(), 5U);
}

// Who stops all processes of a run stops its workers first, by chance: that must not make an update of half a batch.
TEST(NetworkTest, AWorkerThatLeavesIsWaitedForAMoment) {
  constexpr Nanoseconds kMoment = 400'000'000;
  ToyServer server(preset_policy("bsp", 2), 50, 2, [](NetworkOptions& options) { options.leave_grace = kMoment; });
  server.start();
  NetworkLink stays(toy_link(server.port(), 0));
  std::thread goes([&] { EXPECT_EQ(work(toy_link(server.port(), 1), /*most=*/0), 0); });
  Tensors weights = room_for(stays.layout());
  const auto lease = stays.next_lease();
  send(stays, toy_push(stays.pull(weights), weights, lease->samples));
  goes.join();
  const Nanoseconds left = now_ns();
  EXPECT_EQ(server.updates_told, 0);
  ASSERT_TRUE(stays.next_lease().has_value());
  EXPECT_EQ(stays.wait_for_weights(), 1);
  EXPECT_GE(now_ns() - left, kMoment / 2);
  stays.leave();
  server.stop();
}

TEST(NetworkTest, WhenAllHaveLeftTheServerEnds) {
  ToyServer server(preset_policy("asp", 1), 50);
  server.start();
  EXPECT_EQ(work(toy_link(server.port(), 0), /*most=*/7), 7);
  server.join();
  ASSERT_TRUE(server.failure);
  EXPECT_THROW(std::rethrow_exception(server.failure), PeerError);
  EXPECT_EQ(server.server().progress().version, 7);
}

TEST(NetworkTest, APushThatIsNotFiniteEndsTheRun) {
  ToyServer server(preset_policy("asp", 1), 50);
  server.start();
  NetworkLink link(toy_link(server.port(), 0));
  Tensors weights = room_for(link.layout());
  const auto lease = link.next_lease();
  Push push = toy_push(link.pull(weights), weights, lease->samples);
  push.tensors.shards[0][1] = std::numeric_limits<double>::infinity();
  send(link, std::move(push));
  server.join();
  ASSERT_TRUE(server.failure);
  EXPECT_THROW(std::rethrow_exception(server.failure), DivergedError);
  EXPECT_EQ(server.server().progress().version, 0);
}

TEST(NetworkTest, WithKeysOnlyThoseWhoHaveThemAreHeard) {
  const Keys keys = make_keys();
  ToyServer server(preset_policy("asp", 1), 5, 1, [&](NetworkOptions& options) { options.keys = keys; });
  server.start();
  for (const Keys& wrong : {Keys{}, Keys{make_keys().server_public, {}}}) {
    LinkOptions options = toy_link(server.port(), 0);
    options.keys = wrong;
    options.connect_timeout = 600'000'000;
    EXPECT_THROW(NetworkLink{options}, PeerError);
  }
  EXPECT_TRUE(server.updates.empty());
  LinkOptions options = toy_link(server.port(), 0);
  options.keys = {keys.server_public, {}};
  EXPECT_EQ(work(options), 5);
  server.join();
  EXPECT_FALSE(server.failure);
}

}  // namespace
}  // namespace sluice::ps::test
