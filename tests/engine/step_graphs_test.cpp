// Steps whose actions were recorded and run again (CUDA graphs, here a fake of them) give the bits of plain steps:
// losses, logits, gradients, weights and running statistics, with every schedule. What is not alike runs plainly.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "core/concat.h"
#include "core/error.h"
#include "engine/reference.h"
#include "engine/train_step.h"
#include "pipeline/schedule/generators.h"
#include "support/graph_fakes.h"
#include "task/task.h"

namespace sluice::engine::test {
namespace {

using sluice::test::fake_graphs;
using sluice::test::GraphLog;
using sluice::test::WorkCalledAgain;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::uint64_t kSeed = 7;
constexpr double kLr = 0.05;
const optim::OptimizerOptions kOptimizer{.kind = "momentum", .momentum = 0.9, .weight_decay = 0.01};

struct Case {
  std::string schedule;
  std::string model;
  int devices;
  int replicas;
  bool recompute;
};

double dropout_of(const std::string& model) { return model == "vit" || model == "gpt2" ? 0.2 : 0; }

Composition grid_of(const Case& c) {
  Plan plan{
      .replicas = c.replicas, .schedule = c.schedule, .virtual_stages = pipeline::default_virtual_stages(c.schedule)};
  plan.recompute.assign(c.devices * plan.virtual_stages, c.recompute);
  Composition grid = make_grid(small_model(c.model, dropout_of(c.model)), plan, c.devices, kOptimizer);
  grid.plan.chunks = std::max(3, pipeline::least_micro_batches(c.schedule, c.devices));
  return grid;
}

pipeline::MicroBatch batch_of(const Case& c, std::int64_t samples, std::int64_t step) {
  return c.model == "gpt2" ? make_token_batch(samples, step + 1) : make_batch(samples, step + 1);
}

void expect_equal_tensors(const storage::TensorMap& ours, const storage::TensorMap& theirs) {
  ASSERT_EQ(ours.size(), theirs.size());
  for (const auto& [name, tensor] : ours) EXPECT_TRUE(at::equal(tensor, theirs.at(name))) << name;
}

// A step of both, with the logits of the mini-batch.
void expect_equal_steps(TrainStep& ours, Composition& own_grid, TrainStep& theirs, Composition& their_grid,
                        const pipeline::MicroBatch& batch, std::int64_t number) {
  SCOPED_TRACE(concat("step ", number));
  const auto run = [&](TrainStep& step, const Composition& grid) {
    const auto gradients =
        step.compute_gradients(batch, number, grid.plan.chunks, {.counts_scores = true, .keep_logits = true});
    const StepStats stats = step.apply(gradients, batch, number, kLr);
    return std::pair(stats, gradients.logits);
  };
  const auto [stats, logits] = run(ours, own_grid);
  const auto [expected, expected_logits] = run(theirs, their_grid);
  EXPECT_EQ(stats.loss, expected.loss);
  EXPECT_EQ(stats.scores->sums, expected.scores->sums);
  EXPECT_EQ(stats.flops, expected.flops);
  EXPECT_TRUE(at::equal(logits, expected_logits));
  expect_equal_tensors(gradient_tensors(own_grid), gradient_tensors(their_grid));
  expect_equal_tensors(model_tensors(own_grid), model_tensors(their_grid));
}

class RecordedSteps : public testing::TestWithParam<Case> {};

TEST_P(RecordedSteps, GiveTheBitsOfPlainOnes) {
  const Case& c = GetParam();
  GraphLog log;
  Composition grid = grid_of(c), plain_grid = grid_of(c);
  TrainStep step(grid, {.seed = kSeed, .make_graphs = fake_graphs<WorkCalledAgain>(log)});
  TrainStep plain(plain_grid, {.seed = kSeed});
  const std::int64_t whole = 2L * c.replicas * grid.plan.chunks + 1, part = c.replicas * grid.plan.chunks - 1;
  const std::vector<std::int64_t> samples{whole, whole, whole, whole, part, whole, whole};
  for (std::size_t number = 0; number < samples.size(); ++number) {
    const auto batch = batch_of(c, samples[number], static_cast<std::int64_t>(number));
    expect_equal_steps(step, grid, plain, plain_grid, batch, static_cast<std::int64_t>(number));
    if (HasFatalFailure()) return;
  }
  constexpr int kRecordedPasses = 5;  // without the first one and the short one
  EXPECT_EQ(log.sequences, grid.plan.devices() * c.replicas);
  EXPECT_GE(log.records, grid.plan.stages() * c.replicas * grid.plan.chunks * 2);
  EXPECT_EQ(log.launches, kRecordedPasses * log.records);
}

// Every schedule, with what else there is in turns.
std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const std::string& schedule : pipeline::schedule_names()) {
    for (const std::string model : {"vit", "gpt2", "toy_cnn", "resnet8"}) {
      const int n = static_cast<int>(cases.size());
      const int devices = pipeline::default_virtual_stages(schedule) > 1 ? 2 : 1 + n % 3;
      if (devices * pipeline::default_virtual_stages(schedule) > models::count_layers(small_model(model))) continue;
      cases.push_back({schedule, model, devices, 1 + n / 2 % 2, n % 3 == 1});
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Grid, RecordedSteps, testing::ValuesIn(all_cases()), [](const auto& param_info) {
  const Case& c = param_info.param;
  std::string schedule = c.schedule;
  std::ranges::replace(schedule, '-', '_');
  return concat(schedule, "_", c.model, "_", c.devices, "devices_", c.replicas, "replicas",
                c.recompute ? "_recompute" : "");
});

const Case kCase{"zb-h1", "vit", 2, 1, false};

// With weights that stay, the masks alone tell the steps apart.
TEST(StepGraphs, EachStepDrawsMasksOfItsOwn) {
  for (const bool recompute : {false, true}) {
    Case c = kCase;
    c.recompute = recompute;
    GraphLog log;
    Composition grid = grid_of(c);
    TrainStep step(grid, {.seed = kSeed, .make_graphs = fake_graphs<WorkCalledAgain>(log)});
    const pipeline::MicroBatch batch = make_batch(12);
    std::set<double> losses;
    for (std::int64_t number = 0; number < 6; ++number) losses.insert(step.run(batch, number, 0).loss);
    EXPECT_EQ(losses.size(), 6U);
  }
}

// Of texts it differs from step to step, in batches of one shape.
TEST(StepGraphs, GradientsAreScaledByTheTargetsOfTheirOwnStep) {
  const Case c{"1f1b", "gpt2", 2, 1, false};
  GraphLog log;
  Composition grid = grid_of(c), plain_grid = grid_of(c);
  TrainStep step(grid, {.seed = kSeed, .make_graphs = fake_graphs<WorkCalledAgain>(log)});
  TrainStep plain(plain_grid, {.seed = kSeed});
  std::set<std::int64_t> targets;
  for (std::int64_t number = 0; number < 4; ++number) {
    const pipeline::MicroBatch batch = make_token_batch(12, number + 1);
    batch.targets[0].narrow(0, 0, number).fill_(task::kNoTarget);
    targets.insert(task::make_language_model()->count_targets(batch.targets));
    expect_equal_steps(step, grid, plain, plain_grid, batch, number);
  }
  EXPECT_EQ(targets.size(), 4U);
  EXPECT_EQ(log.launches, 3 * log.records);
}

// Another number of micro-batches is another plan: its second step records anew.
TEST(StepGraphs, AnotherNumberOfChunksIsRecordedAnew) {
  GraphLog log;
  Composition grid = grid_of(kCase), plain_grid = grid_of(kCase);
  TrainStep step(grid, {.seed = kSeed, .make_graphs = fake_graphs<WorkCalledAgain>(log)});
  TrainStep plain(plain_grid, {.seed = kSeed});
  const std::vector<int> chunks{3, 3, 3, 5, 5, 5, 3, 3};
  const std::vector<int> sequences{0, 2, 2, 2, 4, 4, 4, 6};  // that were made so far
  for (std::size_t number = 0; number < chunks.size(); ++number) {
    grid.plan.chunks = plain_grid.plan.chunks = chunks[number];
    const auto batch = make_batch(12, static_cast<std::int64_t>(number) + 1);
    expect_equal_steps(step, grid, plain, plain_grid, batch, static_cast<std::int64_t>(number));
    EXPECT_EQ(log.sequences, sequences[number]) << "step " << number;
  }
}

TEST(StepGraphs, TrialsAndWatchedStepsRunPlainly) {
  const Case c{"1f1b", "vit", 2, 1, false};
  GraphLog log;
  Composition grid = grid_of(c), plain_grid = grid_of(c);
  TrainStep step(grid, {.seed = kSeed, .make_graphs = fake_graphs<WorkCalledAgain>(log)});
  TrainStep plain(plain_grid, {.seed = kSeed});
  const pipeline::MicroBatch batch = make_batch(12);
  for (std::int64_t number = 0; number < 6; ++number) {
    const StepRequest request{.take_norms = number == 1 || number == 4, .is_trial = number == 2};
    const int launches = log.launches;
    const auto ours = step.compute_gradients(batch, number, 3, request);
    const auto theirs = plain.compute_gradients(batch, number, 3, request);
    EXPECT_EQ(ours.stats.loss, theirs.stats.loss);
    expect_equal_tensors(gradient_tensors(grid), gradient_tensors(plain_grid));
    EXPECT_EQ(log.launches > launches, number == 3 || number == 5) << number;  // step 0 was plain and like them
  }
}

TEST(StepGraphs, EvaluationRunsPlainly) {
  GraphLog log;
  Composition grid = grid_of(kCase), plain_grid = grid_of(kCase);
  TrainStep step(grid, {.seed = kSeed, .make_graphs = fake_graphs<WorkCalledAgain>(log)});
  TrainStep plain(plain_grid, {.seed = kSeed});
  const pipeline::MicroBatch batch = make_batch(12);
  for (std::int64_t number = 0; number < 4; ++number) {
    expect_equal_steps(step, grid, plain, plain_grid, batch, number);
    const int launches = log.launches;
    EXPECT_EQ(step.evaluate(batch).scores.loss_sum, plain.evaluate(batch).scores.loss_sum);
    EXPECT_EQ(log.launches, launches);
  }
}

std::string failure_of(TrainStep& step, ExitCode code) {
  for (std::int64_t number = 0; number < 2; ++number) {
    try {
      static_cast<void>(step.run(make_batch(12), number, kLr));
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), code);
      EXPECT_EQ(number, 1);
      return error.what();
    }
  }
  ADD_FAILURE() << "no step has failed";
  return {};
}

TEST(StepGraphs, WhatCannotBeRecordedIsNamed) {
  GraphLog log;
  log.fails_at = 5;
  Composition grid = grid_of({"gpipe", "vit", 1, 1, false});
  TrainStep step(grid, {.seed = kSeed, .make_graphs = fake_graphs<WorkCalledAgain>(log)});
  EXPECT_THAT(failure_of(step, ExitCode::kUsage), AllOf(HasSubstr("replica 0 stage 0 at action 0F2 (3 of "),
                                                        HasSubstr("cannot be recorded as a CUDA graph"),
                                                        HasSubstr("operation not permitted when stream is capturing"),
                                                        HasSubstr("; set device.cuda_graphs = false")));
}

TEST(StepGraphs, AfterAFailureStepsAreRecordedAnew) {
  const Case c{"gpipe", "vit", 1, 1, false};
  GraphLog log;
  log.fails_at = 5;
  Composition grid = grid_of(c), plain_grid = grid_of(c);
  TrainStep step(grid, {.seed = kSeed, .make_graphs = fake_graphs<WorkCalledAgain>(log)});
  TrainStep plain(plain_grid, {.seed = kSeed});
  expect_equal_steps(step, grid, plain, plain_grid, make_batch(12, 1), 0);
  EXPECT_THROW(static_cast<void>(step.run(make_batch(12, 2), 1, kLr)), Error);
  for (std::int64_t number = 2; number < 5; ++number)
    expect_equal_steps(step, grid, plain, plain_grid, make_batch(12, number), number);
  EXPECT_EQ(log.sequences, 2);
}

// Their micro-batches are not what a recorded pass runs through.
TEST(StepGraphs, BatchesWithoutASampleForEachMicroBatchRunPlainly) {
  GraphLog log;
  Composition grid = grid_of(kCase), plain_grid = grid_of(kCase);
  TrainStep step(grid, {.seed = kSeed, .make_graphs = fake_graphs<WorkCalledAgain>(log)});
  TrainStep plain(plain_grid, {.seed = kSeed});
  for (std::int64_t number = 0; number < 3; ++number)
    expect_equal_steps(step, grid, plain, plain_grid, make_batch(grid.plan.chunks - 1, number + 1), number);
  EXPECT_EQ(log.records, 0);
}

class NoMemory final : public device::GraphSequence {
 public:
  [[nodiscard]] std::unique_ptr<device::Graph> record(const std::vector<at::Tensor>&,
                                                      const device::GraphWork&) override {
    TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has no more");
    return nullptr;
  }
};

TEST(StepGraphs, TooLittleMemoryToRecordIsSaidAsEver) {
  Composition grid = grid_of({"gpipe", "vit", 1, 1, false});
  TrainStep step(grid,
                 {.seed = kSeed, .make_graphs = [](const device::Stream&) { return std::make_unique<NoMemory>(); }});
  EXPECT_THAT(failure_of(step, ExitCode::kOutOfMemory), HasSubstr("no room for 2.00 GiB"));
}

}  // namespace
}  // namespace sluice::engine::test
