#include "ddp/reducer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <thread>

#include "comm/processes.h"
#include "comm/ranks.h"
#include "core/error.h"

namespace sluice::ddp {
namespace {

constexpr int kParams = 6;
constexpr int kSize = 5;

comm::SyncedStage synced_stage(int replicas) {
  comm::SyncedStage synced{.stage = StageId{0}};
  for (int p = 0; p < kParams; ++p) synced.extents.push_back({ParamId{p}, p * kSize, (p + 1) * kSize});
  for (int r = 0; r < replicas; ++r) {
    synced.gradients.push_back(at::full({kParams * kSize}, r + 1, at::kDouble));
    synced.devices.push_back({device::DeviceKind::kCpu, r});
  }
  return synced;
}

// Small buckets, so that several are in flight at once.
Reducer make_reducer(const comm::SyncedStage& synced) {
  return Reducer({synced}, {.bucket_bytes = 2 * kSize * sizeof(double)});
}

TEST(Reducer, Replica0HoldsTheSumOfAllReplicas) {
  for (const int replicas : {1, 2, 4}) {
    const comm::SyncedStage synced = synced_stage(replicas);
    Reducer reducer = make_reducer(synced);
    static_cast<void>(reducer.begin_step({}));
    {
      std::vector<std::jthread> threads;
      for (int r = 0; r < replicas; ++r) {
        threads.emplace_back([&reducer, r] {
          for (int p = kParams - 1; p >= 0; --p) reducer.on_grad_ready(ReplicaId{r}, ParamId{p});
          reducer.on_backward_done(ReplicaId{r}, StageId{0});
        });
      }
    }
    const auto outcome = reducer.finish_step({.targets = 7, .loss_sum = 3.5, .scores = {2, 6}});
    EXPECT_EQ(outcome.total.targets, 7);
    EXPECT_EQ(outcome.total.scores, (std::vector<double>{2, 6}));
    EXPECT_EQ(outcome.divisor, 1.0);
    const double sum = replicas * (replicas + 1) / 2.0;
    EXPECT_TRUE(at::equal(synced.gradients[0], at::full({kParams * kSize}, sum, at::kDouble))) << replicas;
  }
}

// Replica r's gradient is r + 1 everywhere: 30 (r + 1)^2 squared, and its norm is not that of the sum.
TEST(Reducer, SquaresAreThoseOfEachReplicaBeforeTheSum) {
  const comm::SyncedStage synced = synced_stage(3);
  Reducer reducer = make_reducer(synced);
  static_cast<void>(reducer.begin_step({.takes_norms = true}));
  for (int r = 2; r >= 0; --r) {
    reducer.on_grad_ready(ReplicaId{r}, ParamId{3});
    reducer.on_backward_done(ReplicaId{r}, StageId{0});
  }
  // Of texts: 4 samples with 8 targets, 2 with 6, and none.
  const auto outcome = reducer.finish_step({.of_replicas = {{4, 8}, {2, 6}, {0, 0}}});
  EXPECT_EQ(outcome.norms.replicas, 2);
  EXPECT_DOUBLE_EQ(outcome.norms.squares, 30.0 / 8 + 120.0 / 6);
  EXPECT_DOUBLE_EQ(outcome.norms.per_small, 8.0 / 4 + 6.0 / 2);
  EXPECT_DOUBLE_EQ(outcome.norms.per_big, 64.0 / 4 + 36.0 / 2);
  EXPECT_GT(outcome.norms_time, 0);
  EXPECT_TRUE(at::equal(synced.gradients[0], at::full({kParams * kSize}, 6.0, at::kDouble)));

  static_cast<void>(reducer.begin_step({}));
  for (int r = 0; r < 3; ++r) reducer.on_backward_done(ReplicaId{r}, StageId{0});
  EXPECT_EQ(reducer.finish_step({}).norms.replicas, 0) << "nobody asked";
}

TEST(Reducer, AParameterWithoutAGradientDoesNotHoldUpItsBucket) {
  const comm::SyncedStage synced = synced_stage(2);
  Reducer reducer = make_reducer(synced);
  static_cast<void>(reducer.begin_step({}));
  reducer.on_grad_ready(ReplicaId{0}, ParamId{0});
  reducer.on_backward_done(ReplicaId{0}, StageId{0});
  reducer.on_backward_done(ReplicaId{1}, StageId{0});
  static_cast<void>(reducer.finish_step({}));
  EXPECT_TRUE(at::equal(synced.gradients[0], at::full({kParams * kSize}, 3.0, at::kDouble)));
}

// Threads stand in for two processes, each of which completes another stage first.
TEST(Reducer, StagesThatShareACommunicatorAreSummedInOneOrder) {
  constexpr std::chrono::minutes kMinute(1);
  const int port = comm::test::free_port();
  const auto failures = comm::test::run_ranks(2, [&](int rank) {
    comm::Processes processes(comm::test::world_of(rank, 2, port), {}, {kMinute, kMinute});
    std::vector<comm::SyncedStage> stages{synced_stage(1), synced_stage(1)};
    stages[1].stage = StageId{1};
    for (comm::Extent& extent : stages[1].extents) extent.param = ParamId{kParams + index(extent.param)};
    const auto gradients = processes.make_communicator("gradients"), small = processes.make_communicator("small");
    Reducer reducer(stages, {.bucket_bytes = 2 * kSize * sizeof(double), .record_times = true},
                    {.lines = {{gradients, {1, 0}}}, .small = small});
    for (int step = 0; step < 3; ++step) {
      stages[0].gradients[0].fill_(1 + rank);
      stages[1].gradients[0].fill_(10 * (1 + rank));
      static_cast<void>(reducer.begin_step({}));
      for (const int stage : {rank, 1 - rank}) reducer.on_backward_done(ReplicaId{0}, StageId{stage});
      const comm::StepOutcome outcome = reducer.finish_step({});
      EXPECT_TRUE(at::equal(stages[0].gradients[0], at::full({kParams * kSize}, 3.0, at::kDouble)));
      EXPECT_TRUE(at::equal(stages[1].gradients[0], at::full({kParams * kSize}, 30.0, at::kDouble)));
      ASSERT_EQ(outcome.buckets.size(), 6U);
      for (int i = 0; i < 6; ++i) {
        const BucketSpan& bucket = outcome.buckets[i];
        EXPECT_EQ(index(bucket.stage), i / 3);
        EXPECT_EQ(bucket.bucket, i % 3);
        EXPECT_EQ(bucket.bytes, 2 * kSize * static_cast<std::int64_t>(sizeof(double)));
        EXPECT_GE(bucket.end, bucket.begin);
      }
      EXPECT_LE(outcome.buckets[3].begin, outcome.buckets[0].begin) << "stage 1 comes first";
    }
  });
  EXPECT_THAT(failures, testing::Each(""));
}

TEST(Reducer, EndingAStepEarlyOrReportingTwiceIsOurBug) {
  Reducer reducer = make_reducer(synced_stage(2));
  static_cast<void>(reducer.begin_step({}));
  reducer.on_grad_ready(ReplicaId{0}, ParamId{0});
  EXPECT_THROW(reducer.on_grad_ready(ReplicaId{0}, ParamId{0}), BugError);
  EXPECT_THROW(static_cast<void>(reducer.finish_step({})), BugError);
}

}  // namespace
}  // namespace sluice::ddp
