#include "ps/policy/coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "core/error.h"

namespace sluice::ps {
namespace {

constexpr Nanoseconds kSecond = 1'000'000'000;

PushRecord push_of(int worker, std::int64_t sequence, std::int64_t base_version = 0) {
  return {.worker = WorkerId{worker}, .sequence = sequence, .base_version = base_version, .examples = 1, .targets = 1};
}

std::vector<int> workers_of(const Update& update) {
  std::vector<int> workers;
  for (const PushRecord& record : update.pushes) workers.push_back(static_cast<int>(record.worker));
  return workers;
}

Coordinator with_workers(const SyncPolicy& policy) {
  Coordinator coordinator(policy);
  for (int w = 0; w < policy.workers; ++w) EXPECT_EQ(coordinator.join(WorkerId{w}, 0), 1);
  return coordinator;
}

TEST(Coordinator, BspTakesOnePushOfEverybodyInTheOrderOfTheWorkers) {
  Coordinator bsp = with_workers(preset_policy("bsp", 3));
  EXPECT_EQ(bsp.push(push_of(2, 1), 5), Verdict::kTaken);
  EXPECT_EQ(bsp.push(push_of(0, 1), 6), Verdict::kTaken);
  EXPECT_FALSE(bsp.take_update(kSecond));
  EXPECT_FALSE(bsp.may_begin(WorkerId{0})) << "its push waits";
  EXPECT_TRUE(bsp.may_begin(WorkerId{1}));
  EXPECT_EQ(bsp.push(push_of(1, 1), 7), Verdict::kTaken);
  const auto update = bsp.take_update(7);
  ASSERT_TRUE(update);
  EXPECT_EQ(update->version, 1);
  EXPECT_THAT(workers_of(*update), testing::ElementsAre(0, 1, 2));
  EXPECT_TRUE(bsp.may_begin(WorkerId{0}));
  EXPECT_FALSE(bsp.take_update(kSecond));
}

TEST(Coordinator, NobodyBeginsBeforeAllAreThereUnlessItIsOpened) {
  Coordinator bsp(preset_policy("bsp", 3));
  (void)bsp.join(WorkerId{0}, 0);
  (void)bsp.join(WorkerId{2}, 0);
  EXPECT_FALSE(bsp.may_begin(WorkerId{0}));
  bsp.open(1);
  EXPECT_TRUE(bsp.may_begin(WorkerId{0}));
  EXPECT_FALSE(bsp.may_begin(WorkerId{1})) << "not there";
  (void)bsp.push(push_of(0, 1), 2);
  (void)bsp.push(push_of(2, 1), 2);
  EXPECT_TRUE(bsp.take_update(2));
}

TEST(Coordinator, APushCountsOnceAndInItsTurn) {
  Coordinator bsp = with_workers(preset_policy("bsp", 2));
  EXPECT_EQ(bsp.push(push_of(5, 1), 0), Verdict::kUnknown);
  EXPECT_EQ(bsp.push(push_of(0, 2), 0), Verdict::kOutOfTurn) << "the first is missing";
  EXPECT_EQ(bsp.push(push_of(0, 1, 1), 0), Verdict::kOutOfTurn) << "of weights to come";
  EXPECT_EQ(bsp.push(push_of(0, 1), 0), Verdict::kTaken);
  EXPECT_EQ(bsp.push(push_of(0, 1), 0), Verdict::kDuplicate);
  EXPECT_EQ(bsp.push(push_of(0, 2), 0), Verdict::kOutOfTurn) << "the first waits for its update";
  (void)bsp.push(push_of(1, 1), 0);
  EXPECT_EQ(workers_of(*bsp.take_update(0)).size(), 2U);
  EXPECT_EQ(bsp.push(push_of(0, 1), 0), Verdict::kDuplicate) << "also after its update";
  bsp.leave(WorkerId{0}, 0);
  EXPECT_EQ(bsp.push(push_of(0, 2), 0), Verdict::kUnknown);
  EXPECT_EQ(bsp.join(WorkerId{0}, 0), 2) << "it goes on where it was";
  EXPECT_EQ(bsp.push(push_of(0, 1), 0), Verdict::kDuplicate);
  EXPECT_EQ(bsp.push(push_of(0, 2, 1), 0), Verdict::kTaken);
}

TEST(Coordinator, WhoLeavesIsWaitedForNoLongerAndItsPushCounts) {
  Coordinator bsp = with_workers(preset_policy("bsp", 3));
  (void)bsp.push(push_of(0, 1), 0);
  (void)bsp.push(push_of(1, 1), 0);
  bsp.leave(WorkerId{1}, 1);
  EXPECT_FALSE(bsp.take_update(1)) << "worker 2 has not pushed";
  bsp.leave(WorkerId{2}, 2);
  const auto update = bsp.take_update(2);
  ASSERT_TRUE(update);
  EXPECT_THAT(workers_of(*update), testing::ElementsAre(0, 1));
}

TEST(Coordinator, AQuorumWaitsForItsGraceWindowButNotOnceAllHavePushed) {
  SyncPolicy policy = preset_policy("quorum", 4);
  EXPECT_EQ(policy.quorum, 3);
  policy.grace = kSecond;
  Coordinator quorum = with_workers(policy);
  (void)quorum.push(push_of(0, 1), 0);
  (void)quorum.push(push_of(1, 1), 0);
  EXPECT_FALSE(quorum.due_at());
  (void)quorum.push(push_of(2, 1), 10);
  EXPECT_EQ(quorum.due_at(), 10 + kSecond);
  EXPECT_FALSE(quorum.take_update(kSecond));
  EXPECT_THAT(workers_of(*quorum.take_update(10 + kSecond)), testing::ElementsAre(0, 1, 2));
  for (int w : {0, 1, 2, 3}) (void)quorum.push(push_of(w, w == 3 ? 1 : 2), 2 * kSecond);
  EXPECT_THAT(workers_of(*quorum.take_update(2 * kSecond)), testing::ElementsAre(0, 1, 2, 3));
}

TEST(Coordinator, WhoComesLateBeginsAtTheClockOfTheSlowest) {
  Coordinator ssp = with_workers(preset_policy("ssp", 2));
  for (int step = 1; step <= 5; ++step) {
    for (int w : {0, 1}) {
      (void)ssp.push(push_of(w, step), 0);
      (void)ssp.take_update(0);
    }
  }
  EXPECT_EQ(ssp.slowest(), 5);
  (void)ssp.join(WorkerId{7}, 0);
  EXPECT_EQ(ssp.slowest(), 5) << "else all would wait for it";
  EXPECT_TRUE(ssp.may_begin(WorkerId{0}));
}

// A checker that knows nothing of the coordinator but what it let happen: random speeds, deaths and returns.
struct Storm {
  explicit Storm(const SyncPolicy& policy, unsigned seed) : policy(policy), coordinator(policy), random(seed) {
    for (int w = 0; w < policy.workers; ++w) join(w);
  }
  void join(int w) {
    std::int64_t slowest = -1;
    for (const auto& [other, clock] : clocks) slowest = slowest < 0 ? clock : std::min(slowest, clock);
    next[w] = coordinator.join(WorkerId{w}, now);
    clocks[w] = slowest >= 0 ? slowest : last_clock[w];
  }
  void leave(int w) {
    coordinator.leave(WorkerId{w}, now);
    last_clock[w] = clocks[w];
    clocks.erase(w);
    computing.erase(w);
  }
  void begin(int w) {
    for (const auto& [other, clock] : clocks) {
      if (policy.staleness != kUnbounded) {
        ASSERT_LE(clocks[w] - clock, policy.staleness);
      }
    }
    ASSERT_FALSE(waiting.contains(w));
    computing[w] = coordinator.version();
  }
  void push(int w) {
    ASSERT_EQ(coordinator.push(push_of(w, next[w], computing[w]), now), Verdict::kTaken);
    waiting.insert({w, next[w]++});
    computing.erase(w);
    ++clocks[w];
  }
  void update() {
    while (const auto made = coordinator.take_update(now)) {
      ASSERT_EQ(made->version, ++version);
      std::map<int, std::int64_t> pushes;
      for (const PushRecord& record : made->pushes) pushes.emplace(static_cast<int>(record.worker), record.sequence);
      ASSERT_EQ(pushes, waiting) << "what was pushed since the last update, each once";
      waiting.clear();
    }
  }
  void go_on() {
    const int w = static_cast<int>(random() % policy.workers);
    now += static_cast<Nanoseconds>(random() % 5);
    if (!clocks.contains(w)) {
      if (random() % 4 == 0) join(w);
    } else if (computing.contains(w)) {
      if (random() % (w + 1) == 0) push(w);  // the first ones are the fastest
    } else if (coordinator.may_begin(WorkerId{w})) {
      begin(w);
    } else if (random() % 16 == 0 && clocks.size() > 1) {
      leave(w);
    }
    update();
  }

  SyncPolicy policy;
  Coordinator coordinator;
  std::mt19937 random;
  Nanoseconds now = 0;
  std::int64_t version = 0;
  std::map<int, std::int64_t> clocks, last_clock, next, computing, waiting;
};

TEST(Coordinator, NobodyEverExceedsTheBoundInRandomSchedules) {
  for (const std::int64_t bound : {0, 1, 3, 10}) {
    for (const int quorum : {0, 1, 2, 5}) {
      const SyncPolicy policy{.workers = 5, .quorum = quorum, .grace = quorum == 2 ? 7 : 0, .staleness = bound};
      Storm storm(policy, static_cast<unsigned>(17 * bound + quorum));
      for (int event = 0; event < 20'000 && !testing::Test::HasFatalFailure(); ++event) storm.go_on();
      EXPECT_GT(storm.version, 200) << "bound " << bound << ", quorum " << quorum << ": nobody is stuck";
    }
  }
}

TEST(Coordinator, WithoutABoundTheFastestRunAhead) {
  Storm storm({.workers = 5, .quorum = 1}, 3);
  for (int event = 0; event < 20'000 && !testing::Test::HasFatalFailure(); ++event) storm.go_on();
  const auto [least, most] = std::ranges::minmax_element(storm.next, {}, &std::pair<const int, std::int64_t>::second);
  EXPECT_GT(most->second, 2 * least->second);
}

TEST(SyncPolicy, PresetsAreSoundAndNamed) {
  for (const std::string& name : policy_names()) {
    for (const int workers : {1, 2, 7}) {
      const SyncPolicy policy = preset_policy(name, workers);
      EXPECT_NO_THROW(check_policy(policy, name)) << name << workers;
      EXPECT_EQ(policy.workers, workers);
    }
  }
  EXPECT_EQ(preset_policy("bsp", 3), preset_policy("fmb", 3));
  EXPECT_THROW((void)preset_policy("nothing", 3), ConfigError);
}

TEST(SyncPolicy, RefusesWhatCannotWork) {
  const auto refuses = [](const SyncPolicy& policy) { EXPECT_THROW(check_policy(policy, "ps"), ConfigError); };
  refuses({.workers = 0});
  refuses({.workers = 3, .quorum = 4});
  refuses({.quorum = -1});
  refuses({.grace = -1});
  refuses({.staleness = -2});
  refuses({.deadline = -1});
  refuses({.local_steps = 4});
  refuses({.payload = Payload::kWeights});
  refuses({.deadline = 1, .local_steps = 4, .payload = Payload::kDelta});
  refuses({.weigh = Weigh::kTokensPerStep});
}

}  // namespace
}  // namespace sluice::ps
