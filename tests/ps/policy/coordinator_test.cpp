#include "ps/policy/coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "core/error.h"
#include "pushes.h"

namespace sluice::ps {
namespace {

constexpr Nanoseconds kSecond = 1'000'000'000;

void step(Coordinator& coordinator, int worker, std::int64_t sequence, Nanoseconds now, int incarnation = 1) {
  const std::int64_t version = coordinator.begin(WorkerId{worker});
  EXPECT_EQ(coordinator.push(push_of(worker, sequence, version, incarnation), now), PushAnswer::kCommitted);
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
  step(bsp, 2, 1, 5);
  step(bsp, 0, 1, 6);
  EXPECT_FALSE(bsp.take_update(kSecond));
  EXPECT_FALSE(bsp.may_begin(WorkerId{0})) << "its push waits";
  EXPECT_TRUE(bsp.may_begin(WorkerId{1}));
  step(bsp, 1, 1, 7);
  const auto update = bsp.take_update(7);
  ASSERT_TRUE(update);
  EXPECT_EQ(update->version, 1);
  EXPECT_THAT(workers_of(*update), testing::ElementsAre(0, 1, 2));
  EXPECT_EQ(bsp.begin(WorkerId{0}), 1);
  EXPECT_FALSE(bsp.take_update(kSecond));
}

TEST(Coordinator, NobodyBeginsBeforeAllAreThereUnlessItIsOpened) {
  Coordinator bsp(preset_policy("bsp", 3));
  (void)bsp.join(WorkerId{0}, 0);
  (void)bsp.join(WorkerId{2}, 0);
  EXPECT_FALSE(bsp.may_begin(WorkerId{0}));
  EXPECT_THROW((void)bsp.begin(WorkerId{0}), BugError);
  bsp.open(1);
  EXPECT_FALSE(bsp.may_begin(WorkerId{1})) << "not there";
  step(bsp, 0, 1, 2);
  step(bsp, 2, 1, 2);
  EXPECT_TRUE(bsp.take_update(2));
}

TEST(Coordinator, APushCountsOnceAndInItsTurn) {
  Coordinator bsp = with_workers(preset_policy("bsp", 2));
  EXPECT_EQ(bsp.push(push_of(5, 1), 0), PushAnswer::kUnknown);
  EXPECT_EQ(bsp.push(push_of(0, 1), 0), PushAnswer::kOutOfTurn) << "it has begun nothing";
  (void)bsp.begin(WorkerId{0});
  EXPECT_EQ(bsp.push(push_of(0, 2), 0), PushAnswer::kOutOfTurn) << "the first is missing";
  EXPECT_EQ(bsp.push(push_of(0, 1, 1), 0), PushAnswer::kOutOfTurn) << "it began on other weights";
  EXPECT_EQ(bsp.push(push_of(0, 1), 0), PushAnswer::kCommitted);
  EXPECT_EQ(bsp.push(push_of(0, 1), 0), PushAnswer::kDuplicate);
  EXPECT_EQ(bsp.push(push_of(0, 2), 0), PushAnswer::kOutOfTurn) << "the first waits for its update";
  step(bsp, 1, 1, 0);
  EXPECT_EQ(workers_of(*bsp.take_update(0)).size(), 2U);
  EXPECT_EQ(bsp.push(push_of(0, 1), 0), PushAnswer::kDuplicate) << "also after its update";
}

TEST(Coordinator, WhatCameOfAPushIsKnownWhenItsWorkerHasGoneAndComeBack) {
  Coordinator asp = with_workers(preset_policy("asp", 2));
  step(asp, 0, 1, 0);
  (void)asp.take_update(0);
  (void)asp.begin(WorkerId{0});
  asp.leave(WorkerId{0}, 0);
  EXPECT_EQ(asp.push(push_of(0, 1), 0), PushAnswer::kDuplicate) << "it was taken: its samples are not to come again";
  EXPECT_EQ(asp.push(push_of(0, 2, 1), 0), PushAnswer::kUnknown) << "it never will be";
  EXPECT_EQ(asp.join(WorkerId{0}, 0), 2);
  EXPECT_EQ(asp.push(push_of(0, 1), 0), PushAnswer::kDuplicate);
  EXPECT_EQ(asp.push(push_of(0, 2, 1), 0), PushAnswer::kUnknown) << "of its first life, on the way for long";
  step(asp, 0, 1, 0, /*incarnation=*/2);
  EXPECT_EQ(asp.push(push_of(0, 2, 1), 0), PushAnswer::kUnknown);
  EXPECT_EQ(asp.push(push_of(0, 1, 1, 3), 0), PushAnswer::kUnknown) << "of a life to come";
}

TEST(Coordinator, WhoLeavesIsWaitedForNoLongerAndItsPushCounts) {
  Coordinator bsp = with_workers(preset_policy("bsp", 3));
  step(bsp, 0, 1, 0);
  step(bsp, 1, 1, 0);
  bsp.leave(WorkerId{1}, 1);
  EXPECT_FALSE(bsp.take_update(1)) << "worker 2 has not pushed";
  bsp.leave(WorkerId{2}, 2);
  const auto update = bsp.take_update(2);
  ASSERT_TRUE(update);
  EXPECT_THAT(workers_of(*update), testing::ElementsAre(0, 1));
}

TEST(Coordinator, WhoComesBackWhileItsPushWaitsStaysInStep) {
  Coordinator bsp = with_workers(preset_policy("bsp", 2));
  step(bsp, 0, 1, 0);
  bsp.leave(WorkerId{0}, 0);
  EXPECT_EQ(bsp.join(WorkerId{0}, 0), 2);
  EXPECT_FALSE(bsp.may_begin(WorkerId{0})) << "its push waits still";
  step(bsp, 1, 1, 0);
  ASSERT_TRUE(bsp.take_update(0));
  for (int round = 1; round <= 3; ++round) {
    ASSERT_TRUE(bsp.may_begin(WorkerId{0}) && bsp.may_begin(WorkerId{1})) << "side by side, not in turns";
    step(bsp, 0, round, 0, /*incarnation=*/2);
    step(bsp, 1, 1 + round, 0);
    ASSERT_TRUE(bsp.take_update(0));
  }
}

TEST(Coordinator, AWorkerThatComesAndGoesDoesNotGetAroundTheBound) {
  SyncPolicy policy = preset_policy("ssp", 2);
  policy.staleness = 2;
  Coordinator ssp = with_workers(policy);
  (void)ssp.begin(WorkerId{1});
  int pushes = 0, incarnation = 1, of_incarnation = 0;
  for (int trial = 0; trial < 20; ++trial) {
    if (ssp.may_begin(WorkerId{0})) {
      step(ssp, 0, ++of_incarnation, 0, incarnation);
      (void)ssp.take_update(0);
      ++pushes;
    } else {
      ssp.leave(WorkerId{0}, 0);
      incarnation = ssp.join(WorkerId{0}, 0);
      of_incarnation = 0;
    }
  }
  EXPECT_EQ(pushes, 3) << "two ahead when it begins the third";
}

TEST(Coordinator, AQuorumWaitsForItsGraceWindowButNotOnceAllHavePushed) {
  SyncPolicy policy = preset_policy("quorum", 4);
  EXPECT_EQ(policy.quorum, 3);
  policy.grace = kSecond;
  Coordinator quorum = with_workers(policy);
  step(quorum, 0, 1, 0);
  step(quorum, 1, 1, 0);
  EXPECT_FALSE(quorum.due_at());
  step(quorum, 2, 1, 10);
  EXPECT_EQ(quorum.due_at(), 10 + kSecond);
  EXPECT_FALSE(quorum.take_update(kSecond));
  EXPECT_THAT(workers_of(*quorum.take_update(10 + kSecond)), testing::ElementsAre(0, 1, 2));
  for (const int w : {0, 1, 2, 3}) step(quorum, w, w == 3 ? 1 : 2, 2 * kSecond);
  EXPECT_THAT(workers_of(*quorum.take_update(2 * kSecond)), testing::ElementsAre(0, 1, 2, 3));
}

TEST(Coordinator, WhoComesLateBeginsAtTheClockOfTheSlowest) {
  Coordinator ssp = with_workers(preset_policy("ssp", 2));
  for (int number = 1; number <= 5; ++number) {
    for (const int w : {0, 1}) {
      step(ssp, w, number, 0);
      (void)ssp.take_update(0);
    }
  }
  EXPECT_EQ(ssp.slowest(), 5);
  (void)ssp.join(WorkerId{7}, 0);
  EXPECT_EQ(ssp.slowest(), 5) << "else all would wait for it";
  EXPECT_TRUE(ssp.may_begin(WorkerId{0}));
}

TEST(Coordinator, NoIncarnationThatIsRememberedBeginsAgain) {
  Coordinator asp(preset_policy("asp", 2));
  asp.remember_incarnations(WorkerId{0}, 3);
  asp.remember_incarnations(WorkerId{0}, 2);
  EXPECT_EQ(asp.incarnations(), (std::map<WorkerId, int>{{WorkerId{0}, 3}}));
  EXPECT_EQ(asp.last_committed(WorkerId{0}, 3), 0) << "what was pushed in it is unknown";
  EXPECT_EQ(asp.join(WorkerId{0}, 0), 4);
  EXPECT_EQ(asp.join(WorkerId{1}, 0), 1);
}

TEST(Coordinator, OneThatGoesOnFromALogHasItsUpdatesAndKnowsItsPushes) {
  Coordinator bsp(preset_policy("bsp", 2), 5);
  bsp.remember_incarnations(WorkerId{0}, 1);
  bsp.redo({.version = 6, .pushes = {push_of(0, 3, 5, 2), push_of(1, 1, 5)}});
  EXPECT_THROW(bsp.redo({.version = 6}), BugError) << "it is done";
  EXPECT_THROW(bsp.redo({.version = 8}), BugError) << "a gap";
  bsp.restore_push(push_of(0, 4, 6, 2), 0);
  EXPECT_FALSE(bsp.due_at()) << "the other has not pushed";
  EXPECT_EQ(bsp.push(push_of(0, 3, 5, 2), 0), PushAnswer::kDuplicate);
  EXPECT_EQ(bsp.push(push_of(0, 4, 6, 2), 0), PushAnswer::kDuplicate);
  EXPECT_EQ(bsp.push(push_of(1, 2, 6), 0), PushAnswer::kUnknown) << "it has not come back";
  EXPECT_EQ(bsp.join(WorkerId{0}, 0), 3) << "its lives go on";
  EXPECT_EQ(bsp.join(WorkerId{1}, 0), 2);
  EXPECT_EQ(bsp.push(push_of(0, 5, 6, 2), 0), PushAnswer::kUnknown) << "of a life that is over";
  EXPECT_FALSE(bsp.may_begin(WorkerId{0})) << "its push waits";
  step(bsp, 1, 1, 1, 2);
  const auto update = bsp.take_update(1);
  ASSERT_TRUE(update);
  EXPECT_EQ(update->version, 7);
  ASSERT_EQ(update->pushes.size(), 2U);
  EXPECT_EQ(update->pushes[0], push_of(0, 4, 6, 2));
  EXPECT_TRUE(bsp.may_begin(WorkerId{0}));
}

TEST(Coordinator, WhereEachPushMakesAnUpdateOneThatWaitedMakesItAtOnce) {
  for (const char* policy : {"asp", "ssp"}) {
    Coordinator coordinator(preset_policy(policy, 3), 5);
    coordinator.restore_push(push_of(1, 2, 5), 10);
    const auto update = coordinator.take_update(10);
    ASSERT_TRUE(update) << policy;
    EXPECT_THAT(workers_of(*update), testing::ElementsAre(1));
    EXPECT_FALSE(coordinator.take_update(kSecond));
  }
}

}  // namespace
}  // namespace sluice::ps
