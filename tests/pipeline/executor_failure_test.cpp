#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "comm/processes.h"
#include "comm/ranks.h"
#include "core/clock.h"
#include "core/error.h"
#include "nn/replica_sum.h"
#include "pipeline/executor.h"
#include "pipeline/schedule/generators.h"
#include "support/toy_model.h"

namespace sluice::pipeline {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

constexpr int kWidth = 4;

// Two replicas of three stages; `action` runs in the forward of stage `stage`.
Executor make_executor(int stage, const std::function<void(const nn::ForwardContext&)>& action,
                       std::chrono::milliseconds timeout) {
  const auto layers_of = [=] {
    auto layers = test::make_toy_layers(3, kWidth, 1);
    layers.insert(layers.begin() + stage, std::make_unique<test::ProbeLayer>("probe", action));
    return layers;
  };
  Partition partition{{1, 1, 1}};
  ++partition.layers_per_stage[stage];
  return Executor(test::make_toy_grid(layers_of, partition, 2), test::cpu_grid(2, 3), test::one_stage_each(3),
                  {.step_timeout = timeout});
}

PassRequest training_pass() {
  PassRequest request{
      .schedule = make_1f1b({.stages = 3, .micro_batches = 4}), .context = {.training = true}, .loss = test::toy_loss};
  for (const MicroBatch& share : split(test::make_toy_batch(16, kWidth, 3), 2))
    request.micro_batches.push_back(split(share, 4));
  return request;
}

TEST(ExecutorFailure, StageFailureDoesNotHangItsPeersAndIsNamed) {
  for (int stage = 0; stage < 3; ++stage) {
    std::atomic<bool> fail = true;
    std::atomic<int> calls = 0;
    Executor executor = make_executor(
        stage,
        [&](const nn::ForwardContext&) {
          if (++calls == 5 && fail) throw DataError("planted failure");
        },
        60s);
    const Nanoseconds begin = now_ns();
    testing::internal::CaptureStderr();
    try {
      executor.run(training_pass());
      FAIL() << "the planted failure was lost";
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::kData);
      EXPECT_THAT(error.what(), HasSubstr("planted failure"));
      EXPECT_THAT(error.what(), HasSubstr("stage " + std::to_string(stage)));
      EXPECT_THAT(error.what(), HasSubstr("at action " + std::to_string(stage) + "F"));
    }
    EXPECT_THAT(testing::internal::GetCapturedStderr(),
                AllOf(HasSubstr("ran this schedule (1f1b)"), ContainsRegex("device 0: .*0F1"),
                      HasSubstr("<-- here: " + std::to_string(stage) + "F")));
    EXPECT_LT(to_s(now_ns() - begin), 5.0);
    // No thread is left inside the step, nothing is left of it: the next one runs.
    fail = false;
    executor.run(training_pass());
    EXPECT_EQ(executor.stage(ReplicaId{0}, StageId{0}).in_flight(), 0);
  }
}

TEST(ExecutorFailure, LibTorchErrorsAndRefusedMemoryAreTranslated) {
  Executor wrong_shape = make_executor(
      1,
      [](const nn::ForwardContext&) {
        at::mm(at::ones({2, 3}), at::ones({2, 3}));
      },
      60s);
  try {
    wrong_shape.run(training_pass());
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("LibTorch reports: "));
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
  }
  Executor too_large = make_executor(
      1, [](const nn::ForwardContext&) { at::empty({std::int64_t{1} << 50}); }, 60s);
  try {
    too_large.run(training_pass());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kOutOfMemory) << error.what();
  }
}

TEST(ExecutorFailure, AHungStageIsReportedWithWhatEveryStageIsDoing) {
  std::atomic<bool> released = false;
  {
    Executor executor = make_executor(
        1,
        [&](const nn::ForwardContext&) {
          while (!released) std::this_thread::sleep_for(10ms);
        },
        300ms);
    std::jthread release([&] {
      std::this_thread::sleep_for(1s);
      released = true;
    });
    testing::internal::CaptureStderr();
    try {
      executor.run(training_pass());
      FAIL() << "the hang was not noticed";
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::kPeer);
      EXPECT_THAT(error.what(), HasSubstr("did not end within 0.3 s"));
      EXPECT_THAT(error.what(), HasSubstr("replica 1 stage 1"));
      EXPECT_THAT(error.what(), HasSubstr("1F0"));
      EXPECT_THAT(
          error.what(),
          HasSubstr("replica 1 stage 2 at action 2F0 (1 of 8, micro-batch 0), which waits for replica 1 stage 1"));
      EXPECT_THAT(error.what(), HasSubstr("the others wait for replica 1 stage 1 at action 1F0"));
    }
    EXPECT_THAT(testing::internal::GetCapturedStderr(),
                AllOf(HasSubstr("replica 0 ran this schedule (1f1b)"), HasSubstr("replica 1 ran this schedule (1f1b)"),
                      HasSubstr("device 1: [1F0] 1F1")));
  }
}

// One process of several: a stage whose `action` runs in forward, then takes part in a sum over the processes, as
// synchronised batch-norm does.
class SummingProcess {
 public:
  SummingProcess(comm::Processes& processes, std::chrono::milliseconds timeout, const std::function<void()>& action)
      : executor_([&] {
          const auto sums = [action](const nn::ForwardContext& context) {
            action();
            (void)context.replicas->sum(at::ones({1}, at::kDouble));
          };
          const auto layers_of = [sums] {
            auto layers = test::make_toy_layers(1, kWidth, 1);
            layers.push_back(std::make_unique<test::ProbeLayer>("probe", sums));
            return layers;
          };
          return Executor(test::make_toy_grid(layers_of, Partition{{2}}, 1), test::cpu_grid(1, 1),
                          test::one_stage_each(1), {.step_timeout = timeout});
        }()),
        communicator_(processes.make_communicator("the statistics")) {}

  void run() {
    PassRequest request{.schedule = make_1f1b({.stages = 1, .micro_batches = 2}),
                        .context = {.training = true, .numerics = {.batch_norm = nn::BatchNormMode::kSync}},
                        .loss = test::toy_loss,
                        .statistics_communicators = {communicator_}};
    request.micro_batches = {split(test::make_toy_batch(4, kWidth, 3), 2)};
    executor_.run(std::move(request));
  }

 private:
  Executor executor_;
  std::shared_ptr<comm::Communicator> communicator_;
};

constexpr comm::TimeLimits kLimits{30s, 30s};

// It saved a checkpoint, or waited for its data: the others used to call their own step hung.
TEST(ExecutorWithOtherProcesses, OneThatComesToTheStepLateIsNoHang) {
  const int port = comm::test::free_port();
  const auto failures = comm::test::run_ranks(2, [&](int rank) {
    comm::Processes processes(comm::test::world_of(rank, 2, port), {}, kLimits);
    SummingProcess process(processes, 1s, [] {});
    process.run();
    if (rank == 1) std::this_thread::sleep_for(2500ms);
    process.run();
  });
  EXPECT_THAT(failures, ::testing::Each(""));
}

// The hang ends in the process that hangs, which names the slot; the other one ends because that one has gone, and
// does not call its own step hung.
TEST(ExecutorWithOtherProcesses, AHangIsReportedByTheProcessThatHangs) {
  const int port = comm::test::free_port();
  const auto failures = comm::test::run_ranks(2, [&](int rank) {
    const auto is_released = std::make_shared<std::atomic<bool>>(false);
    std::jthread release;
    comm::Processes processes(comm::test::world_of(rank, 2, port), {}, kLimits);
    SummingProcess process(processes, rank == 0 ? 1s : 1500ms, [&, is_released] {
      while (rank == 1 && !*is_released) std::this_thread::sleep_for(10ms);
    });
    if (rank == 1) {
      release = std::jthread([is_released] {
        std::this_thread::sleep_for(2500ms);
        *is_released = true;
      });
    }
    process.run();
  });
  EXPECT_THAT(failures[1], AllOf(HasSubstr("5: the step did not end within 1.5 s"), HasSubstr("at action 0F0")));
  EXPECT_THAT(failures[0], AllOf(HasSubstr("5: "), HasSubstr("the all-reduce of the statistics failed")));
}

}  // namespace
}  // namespace sluice::pipeline
