// Parity over processes: any number of processes x local replicas x stages x chunks, every rank with other samples,
// gives the parameters of one device that takes the whole batches, also where the norm of the gradient of all is
// clipped, and where the loss is a mean over tokens that are spread unevenly. In float64, to 1e-10. Threads stand in
// for processes.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "comm/processes.h"
#include "comm/ranks.h"
#include "core/concat.h"
#include "core/error.h"
#include "data/sampler.h"
#include "engine/reference.h"
#include "engine/same_state.h"
#include "engine/state.h"
#include "engine/train_step.h"
#include "task/task.h"

namespace sluice::engine::test {
namespace {

constexpr double kTolerance = 1e-10;
constexpr std::uint64_t kSeed = 7;
constexpr comm::TimeLimits kLimit{std::chrono::minutes(1), std::chrono::minutes(1)};

struct Case {
  std::string model;
  int processes;
  int replicas;
  int stages;
  int chunks;
  double clip_norm = 0;
  std::string schedule = "1f1b";
  std::vector<int> shares = {};  // Plan::shares
};

StepBatch share_of(const pipeline::MicroBatch& whole, int rank, const Case& c) {
  const auto slice = data::share_slice(whole.samples(), {.first = static_cast<std::int64_t>(rank) * c.replicas,
                                                         .count = c.replicas,
                                                         .parts = Parts(c.processes * c.replicas, c.shares)});
  const auto part = [&](const at::Tensor& tensor) { return tensor.narrow(0, slice.begin, slice.count); };
  return {{{part(whole.inputs[0])}, {part(whole.targets[0])}, part(whole.sample_ids)}, whole.samples()};
}

// Three steps, the last of fewer samples than replicas. Of texts each process has another number of targets, the last
// of four processes none in the second step.
pipeline::MicroBatch batch_of_step(const Case& c, std::int64_t step) {
  const std::int64_t samples = step == 2 ? 3 : 13 - step;
  if (c.model != "gpt2") return make_batch(samples, step + 1);
  pipeline::MicroBatch batch = make_token_batch(samples, step + 1);
  if (step == 1) batch.targets[0].narrow(0, 9, 3).fill_(task::kNoTarget);
  return batch;
}

class ProcessesParity : public testing::TestWithParam<Case> {};

TEST_P(ProcessesParity, ThreeUpdatesGiveTheParametersOfOneDevice) {
  const Case& c = GetParam();
  const models::ModelOptions model = small_model(c.model);
  const optim::OptimizerOptions optimizer{.kind = "momentum", .momentum = 0.9, .weight_decay = 0.01};
  ReferenceModel one_device(model);
  std::vector<double> losses;
  std::vector<ScoreSums> scores;
  for (std::int64_t step = 0; step < 3; ++step) {
    const pipeline::MicroBatch batch = batch_of_step(c, step);
    const ReferenceStep result = one_device.step({batch}, {.training = true, .seed = kSeed, .step = step});
    one_device.update(optimizer, 0.05, c.clip_norm);
    losses.push_back(result.loss);
    const task::TaskPtr task = task::make_classification();
    scores.push_back({.targets = task->count_targets(batch.targets),
                      .sums = task->sums_of(task->count({result.logits}, batch.targets))});
  }
  const storage::TensorMap expected = one_device.tensors();

  const int port = comm::test::free_port();
  std::mutex mutex;
  const auto failures = comm::test::run_ranks(c.processes, [&](int rank) {
    comm::Processes processes(comm::test::world_of(rank, c.processes, port), {}, kLimit);
    Composition grid = make_grid(model, c.schedule, c.stages, c.replicas, optimizer, {}, &processes);
    grid.plan.chunks = c.chunks;
    grid.plan.shares = c.shares;
    TrainStep step(grid, {.seed = kSeed, .clip_norm = c.clip_norm});
    for (std::int64_t number = 0; number < 3; ++number) {
      const pipeline::MicroBatch whole = batch_of_step(c, number);
      const StepStats stats = step.run(share_of(whole, rank, c), number, 0.05, {.counts_scores = true});
      const std::scoped_lock lock(mutex);  // GoogleTest's expectations
      EXPECT_NEAR(stats.loss, losses[number], kTolerance * losses[number]) << "rank " << rank;
      EXPECT_EQ(stats.samples, whole.samples());
      EXPECT_EQ(stats.scores.value().sums, scores[number].sums) << "over all processes, before the update";
      EXPECT_EQ(stats.scores->targets, scores[number].targets);
      EXPECT_EQ(stats.scores->loss(), stats.loss);
      EXPECT_TRUE(c.clip_norm == 0 || stats.gradient_norm.value() > c.clip_norm) << "nothing was clipped";
    }
    const auto [error, tensor] = worst_error(model_tensors(grid), expected);
    const std::scoped_lock lock(mutex);
    EXPECT_LE(error, kTolerance) << tensor << " in rank " << rank;
  });
  EXPECT_THAT(failures, testing::Each(""));
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const std::string model : {"vit", "toy_cnn", "gpt2"}) {
    const double clip_norm = model == "toy_cnn" ? 0 : 0.1;
    for (const int processes : {1, 2, 4}) {
      for (const int replicas : {1, 2}) {
        for (const int stages : {1, 2})
          cases.push_back({model, processes, replicas, stages, stages == 1 ? 1 : 3, clip_norm});
      }
    }
  }
  for (const std::string model : {"vit", "toy_cnn", "gpt2"}) {
    const double clip_norm = model == "toy_cnn" ? 0 : 0.1;
    // Split backward: a bucket waits for weight gradients, which come last.
    for (const int processes : {2, 3}) cases.push_back({model, processes, 2, 2, 3, clip_norm, "zb-h1"});
    // Of the last step's 3 samples, the smallest shares get none.
    cases.push_back({model, 1, 3, 1, 2, clip_norm, "1f1b", {1, 3, 2}});
    cases.push_back({model, 2, 2, 2, 3, clip_norm, "zb-h1", {1, 4, 2, 1}});
    cases.push_back({model, 3, 1, 2, 3, clip_norm, "gpipe", {700, 100, 200}});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Grid, ProcessesParity, testing::ValuesIn(all_cases()), [](const auto& param_info) {
  const Case& c = param_info.param;
  std::string schedule = c.schedule;
  std::erase(schedule, '-');
  return concat(c.model, "_", c.processes, "processes_", c.replicas, "replicas_", c.stages, "stages_", schedule,
                c.shares.empty() ? "" : "_shares");
});

// One rank's samples are not finite, or one's targets give an infinite loss: all ranks end alike.
TEST(ProcessesThatDiverge, AllRanksEndWithTheSameKindOfError) {
  constexpr int kProcesses = 3;
  for (const bool data_is_bad : {true, false}) {
    const int port = comm::test::free_port();
    const auto failures = comm::test::run_ranks(kProcesses, [&](int rank) {
      comm::Processes processes(comm::test::world_of(rank, kProcesses, port), {}, kLimit);
      Composition grid = make_grid(small_model("toy_cnn"), "1f1b", 1, 2, {.kind = "sgd"}, {}, &processes);
      StepBatch batch = share_of(make_batch(13), rank, {"toy_cnn", kProcesses, 2, 1, 1});
      model_tensors(grid).at("fc.weight").mul_(1e30);
      // So large that a number overflows in this rank.
      if (rank == 1) batch.local.inputs[0] = at::full_like(batch.local.inputs[0], data_is_bad ? std::nan("") : 1e308);
      (void)TrainStep(grid, {}).run(batch, 4, 0.05);
    });
    for (const std::string& failure : failures)
      EXPECT_THAT(failure, testing::StartsWith(data_is_bad ? "3: step 5: the loss is NaN" : "6: step 5: the loss is "));
    if (!data_is_bad) continue;
    EXPECT_THAT(failures[0], testing::HasSubstr("rank 1 has a sample that is not finite"));
    EXPECT_THAT(failures[1], testing::HasSubstr("NaN among its inputs"));
  }
}

// The first batch-norm's statistics do not depend on the cut, so plain operations can say what they should be.
TEST(ProcessesWithBatchNorm, DeferredStatisticsAreThoseOfTheWholeMiniBatchInEveryRank) {
  const Case c{.model = "resnet8", .processes = 3, .replicas = 2, .stages = 2, .chunks = 2};
  const models::ModelOptions model = small_model(c.model);
  const pipeline::MicroBatch batch = make_batch(13);
  const int port = comm::test::free_port();
  std::vector<storage::TensorMap> tensors(c.processes);
  const auto failures = comm::test::run_ranks(c.processes, [&](int rank) {
    comm::Processes processes(comm::test::world_of(rank, c.processes, port), {}, kLimit);
    Composition grid = make_grid(model, "1f1b", c.stages, c.replicas, {.kind = "sgd"}, {}, &processes);
    TrainStep step(grid, {.seed = kSeed, .numerics = {.batch_norm = nn::BatchNormMode::kDeferred}});
    (void)step.compute_gradients(share_of(batch, rank, c), 0, c.chunks);
    tensors[rank] = model_tensors(grid);
    for (auto& [name, tensor] : tensors[rank]) tensor = tensor.clone();
  });
  EXPECT_THAT(failures, testing::Each(""));
  const at::Tensor x = at::conv2d(batch.inputs[0], tensors[0].at("conv1.weight"), {}, 1, 1);
  const at::Tensor mean = 0.1 * x.mean({0, 2, 3});
  const at::Tensor variance = 0.9 + 0.1 * x.var(at::IntArrayRef{0, 2, 3}, /*unbiased=*/true);
  for (const storage::TensorMap& of_rank : tensors) {
    EXPECT_TRUE(at::allclose(of_rank.at("bn1.running_mean"), mean, 1e-10, 1e-14));
    EXPECT_TRUE(at::allclose(of_rank.at("bn1.running_var"), variance, 1e-10, 1e-14));
    for (const auto& [name, tensor] : of_rank) EXPECT_TRUE(at::equal(tensor, tensors[0].at(name))) << name;
  }
}

// 5 samples in 6 replicas: one has none, and takes part.
TEST(ProcessesWithBatchNorm, SynchronisedStatisticsAndGradientsAreThoseOfAllReplicas) {
  const Case c{.model = "resnet8", .processes = 3, .replicas = 2, .stages = 2, .chunks = 2};
  for (const std::int64_t samples : {13, 5}) {
    const pipeline::MicroBatch batch = make_batch(samples);
    ReferenceModel one_device(small_model(c.model));
    const ReferenceStep reference = one_device.step(joined_micro_batches(batch, c.processes * c.replicas, c.chunks),
                                                    {.training = true, .seed = kSeed});
    const int port = comm::test::free_port();
    std::mutex mutex;
    const auto failures = comm::test::run_ranks(c.processes, [&](int rank) {
      comm::Processes processes(comm::test::world_of(rank, c.processes, port), {}, kLimit);
      Composition grid = make_grid(small_model(c.model), "1f1b", c.stages, c.replicas, {.kind = "sgd"}, {}, &processes);
      TrainStep step(grid, {.seed = kSeed, .numerics = {.batch_norm = nn::BatchNormMode::kSync}});
      const auto result = step.compute_gradients(share_of(batch, rank, c), 0, c.chunks);
      storage::TensorMap gradients;
      for (const auto& [name, gradient] : gradient_tensors(grid)) gradients[name] = gradient / result.divisor;
      const auto [error, name] = worst_error(gradients, reference.gradients);
      const auto [of_tensors, tensor] = worst_error(model_tensors(grid), one_device.tensors());
      const std::scoped_lock lock(mutex);  // GoogleTest's expectations
      EXPECT_LE(error, kTolerance) << name << " in rank " << rank;
      EXPECT_LE(of_tensors, kTolerance) << tensor << " in rank " << rank;
    });
    EXPECT_THAT(failures, testing::Each(""));
  }
}

// The same in one process, where a stage that recomputes takes part in the sums of its forward once more in backward:
// 3 samples in 4 replicas: one replica has none, and the others none in their second micro-batch.
TEST(EmptyShares, TakePartInSynchronisedBatchNormAlsoWhereStagesRecompute) {
  constexpr int kReplicas = 4, kChunks = 2, kStages = 2;
  const models::ModelOptions model = small_model("resnet8");
  const pipeline::MicroBatch batch = make_batch(3);
  ReferenceModel one_device(model);
  const ReferenceStep reference =
      one_device.step(joined_micro_batches(batch, kReplicas, kChunks), {.training = true, .seed = kSeed});
  for (const std::vector<bool>& recompute : {std::vector<bool>{false, false}, {true, true}}) {
    SCOPED_TRACE(concat("recompute ", recompute[0]));
    Composition grid =
        make_grid(model, Plan{.replicas = kReplicas, .schedule = "1f1b", .recompute = recompute}, kStages);
    TrainStep step(grid, {.seed = kSeed, .numerics = {.batch_norm = nn::BatchNormMode::kSync}});
    const auto result = step.compute_gradients(batch, 0, kChunks);
    storage::TensorMap gradients;
    for (const auto& [name, gradient] : gradient_tensors(grid)) gradients[name] = gradient / result.divisor;
    const auto [error, name] = worst_error(gradients, reference.gradients);
    EXPECT_LE(error, kTolerance) << name;
    const auto [of_tensors, tensor] = worst_error(model_tensors(grid), one_device.tensors());
    EXPECT_LE(of_tensors, kTolerance) << tensor;
  }
}

// The replicas have 2, 1, 1 and 1 samples: not every micro-batch of each has one.
TEST(ProcessesWithBatchNorm, ShortSharesCountAsManyBatchesAsTheLongest) {
  const Case c{.model = "resnet8", .processes = 2, .replicas = 2, .stages = 2, .chunks = 2};
  const pipeline::MicroBatch batch = make_batch(5);
  const int port = comm::test::free_port();
  const auto failures = comm::test::run_ranks(c.processes, [&](int rank) {
    comm::Processes processes(comm::test::world_of(rank, c.processes, port), {}, kLimit);
    Composition grid = make_grid(small_model(c.model), "1f1b", c.stages, c.replicas, {.kind = "sgd"}, {}, &processes);
    TrainStep step(grid, {.seed = kSeed});
    (void)step.compute_gradients(share_of(batch, rank, c), 0, c.chunks);
    EXPECT_EQ(model_tensors(grid).at("bn1.num_batches_tracked").item<std::int64_t>(), 2);
    for (int r = 0; r < c.replicas; ++r) {
      for (const nn::Buffer* buffer : grid.executor->stage(ReplicaId{r}, StageId{0}).parameters().buffers())
        EXPECT_TRUE(at::equal(buffer->value, model_tensors(grid).at(buffer->name))) << buffer->name;
    }
    step.update_weights(0.1, 1);
    check_same_state(grid, "after the step");
  });
  EXPECT_THAT(failures, testing::Each(""));
}

// A rank that resumed at the beginning of the data used to train on other samples than the rest, until the epoch ended
// for it at another step and all waited for each other for minutes.
TEST(ProcessesAtDifferentSteps, EndWithTheStepAndTheBatchesThatDiffer) {
  const models::ModelOptions model = small_model("toy_cnn");
  const int port = comm::test::free_port();
  const auto failures = comm::test::run_ranks(3, [&](int rank) {
    comm::Processes processes(comm::test::world_of(rank, 3, port), {}, kLimit);
    Composition grid = make_grid(model, "1f1b", 1, 1, {.kind = "sgd"}, {}, &processes);
    TrainStep step(grid, {.seed = kSeed});
    const auto run = [&](std::int64_t number, std::int64_t batch) {
      (void)step.run({make_batch(2, rank + 1), 6, batch}, number, 0.05);
    };
    run(7, 12);
    run(8, rank == 2 ? 0 : 13);
  });
  for (const std::string& failure : failures) {
    EXPECT_THAT(failure, testing::StartsWith("70: step 9: rank 2 trains batch 0, but rank 0 trains batch 13"));
  }
}

Composition one_stage(const models::ModelOptions& model, int threads, comm::Processes* processes) {
  return compose({.partition = {{models::count_layers(model)}}},
                 {.model_name = model.name,
                  .make_layers = [model] { return models::make_model(model).layers; },
                  .devices = {{device::DeviceKind::kCpu, 0}},
                  .cpu_threads = threads,
                  .optimizer = {.kind = "sgd"},
                  .communicators = processes == nullptr ? nullptr : std::make_shared<Communicators>(*processes)});
}

// How many threads add the squares up decides the last bit of a norm; a gradient that differs stands for that too.
TEST(ClipNorm, OneNormHoldsInAllProcesses) {
  const Case c{.model = "vit", .processes = 3, .replicas = 1, .stages = 1, .chunks = 1};
  const int port = comm::test::free_port();
  std::vector<double> norms(c.processes), norms_of_changed(c.processes);
  const auto failures = comm::test::run_ranks(c.processes, [&](int rank) {
    comm::Processes processes(comm::test::world_of(rank, c.processes, port), {}, kLimit);
    Composition grid = one_stage(small_model(c.model), rank + 1, &processes);
    TrainStep step(grid, {.seed = kSeed, .clip_norm = 0.1});
    for (std::int64_t number = 0; number < 3; ++number)
      norms[rank] = step.run(share_of(make_batch(13, number), rank, c), number, 0.05).gradient_norm.value();
    check_same_state(grid, "after three steps");
    const auto gradients = step.compute_gradients(share_of(make_batch(13), rank, c), 3, 1);
    if (rank == 1) gradient_tensors(grid).begin()->second.add_(1);
    norms_of_changed[rank] = step.apply(gradients, share_of(make_batch(13), rank, c), 3, 0.05).gradient_norm.value();
  });
  EXPECT_THAT(failures, testing::Each(""));
  EXPECT_THAT(norms, testing::Each(norms[0]));
  EXPECT_THAT(norms_of_changed, testing::Each(norms_of_changed[0]));
}

// Shares of 5, 4 and 4 samples.
TEST(Flops, OfAStepAreThoseOfTheGlobalBatchInEveryProcess) {
  const Case c{.model = "vit", .processes = 3, .replicas = 1, .stages = 1, .chunks = 1};
  const models::ModelOptions model = small_model(c.model);
  Composition alone = one_stage(model, 1, nullptr);
  const FlopCount expected = TrainStep(alone, {}).run(make_batch(13), 0, 0.05).flops;
  ASSERT_GT(all_flops(expected), 0);
  const int port = comm::test::free_port();
  std::vector<FlopCount> found(c.processes);
  const auto failures = comm::test::run_ranks(c.processes, [&](int rank) {
    comm::Processes processes(comm::test::world_of(rank, c.processes, port), {}, kLimit);
    Composition grid = one_stage(model, 1, &processes);
    found[rank] = TrainStep(grid, {}).run(share_of(make_batch(13), rank, c), 0, 0.05).flops;
  });
  EXPECT_THAT(failures, testing::Each(""));
  for (const FlopCount& of_rank : found) {
    for (int kind = 0; kind < kProductKinds; ++kind) EXPECT_NEAR(of_rank[kind], expected[kind], 1e-9 * expected[kind]);
  }
}

TEST(SameStart, TheNumberOfOptimizerStepsIsHandedOutAndCompared) {
  const int port = comm::test::free_port();
  const auto failures = comm::test::run_ranks(3, [&](int rank) {
    comm::Processes processes(comm::test::world_of(rank, 3, port), {}, kLimit);
    Composition grid = make_grid(small_model("vit"), "1f1b", 2, 1, {.kind = "adamw"}, {}, &processes);
    const auto set_steps = [&](std::int64_t steps) {
      for (const auto& optimizer : grid.optimizers) optimizer->set_steps(steps);
    };
    set_steps(rank == 0 ? 7 : 0);  // rank 0 has read a checkpoint
    hand_out_state(grid);
    for (const auto& optimizer : grid.optimizers) EXPECT_EQ(optimizer->steps(), 7) << "rank " << rank;
    set_steps(rank == 2 ? 8 : 7);
    try {
      check_same_state(grid, "now");
      ADD_FAILURE() << "the other number of steps was not seen";
    } catch (const PeerError& error) {
      EXPECT_THAT(error.what(),
                  testing::HasSubstr("the number of optimizer steps of stage 0 of rank 2 differs from rank 0 now"));
    }
  });
  EXPECT_THAT(failures, testing::Each(""));
}

TEST(SameStart, Rank0HandsOutItsStateAndAnyDifferenceAfterwardsIsNamed) {
  const int port = comm::test::free_port();
  const auto failures = comm::test::run_ranks(3, [&](int rank) {
    comm::Processes processes(comm::test::world_of(rank, 3, port), {}, kLimit);
    models::ModelOptions model = small_model("resnet8");
    model.seed = rank;
    Composition grid = make_grid(model, "1f1b", 2, 2, {.kind = "momentum", .momentum = 0.9}, {}, &processes);
    const at::Tensor fresh = model_tensors(grid).at("fc.weight").clone();
    hand_out_state(grid);
    EXPECT_EQ(at::equal(model_tensors(grid).at("fc.weight"), fresh), rank == 0) << "every rank had its own seed";
    check_same_state(grid, "now");
    // The smallest change of one number in two ranks: of a parameter, then of the optimizer's state.
    for (const auto& tensors : {model_tensors(grid), optimizer_tensors(grid)}) {
      const auto& [name, tensor] = *tensors.rbegin();
      const at::Tensor first = tensor.view(-1)[0];
      if (rank > 0) first.copy_(at::nextafter(first, first + 1));
      try {
        check_same_state(grid, "now");
        ADD_FAILURE() << "the change of " << name << " was not seen";
      } catch (const PeerError& error) {
        EXPECT_THAT(error.what(), testing::HasSubstr("tensor " + name + " of ranks 1, 2 differs from rank 0 now"));
      }
      if (rank > 0) first.copy_(at::nextafter(first, first - 1));
    }
  });
  EXPECT_THAT(failures, testing::Each(""));
}

TEST(ProcessesWithBatchNorm, MicroStatisticsBecomeTheMeanBySamplesInEveryRank) {
  const Case c{.model = "resnet8", .processes = 2, .replicas = 1, .stages = 1, .chunks = 1};
  const pipeline::MicroBatch batch = make_batch(13);  // 7 and 6
  const int port = comm::test::free_port();
  std::vector<storage::TensorMap> tensors(c.processes);
  const auto failures = comm::test::run_ranks(c.processes, [&](int rank) {
    comm::Processes processes(comm::test::world_of(rank, c.processes, port), {}, kLimit);
    Composition grid = make_grid(small_model(c.model), "1f1b", 1, 1, {.kind = "sgd"}, {}, &processes);
    TrainStep step(grid, {.seed = kSeed});
    (void)step.compute_gradients(share_of(batch, rank, c), 0, 1);
    tensors[rank] = model_tensors(grid);
    for (auto& [name, tensor] : tensors[rank]) tensor = tensor.clone();
  });
  EXPECT_THAT(failures, testing::Each(""));
  const at::Tensor x = at::conv2d(batch.inputs[0], tensors[0].at("conv1.weight"), {}, 1, 1);
  const auto mean_of = [](const at::Tensor& part) { return 0.1 * part.mean({0, 2, 3}); };
  const at::Tensor mean = (mean_of(x.narrow(0, 0, 7)) * 7 + mean_of(x.narrow(0, 7, 6)) * 6) / 13;
  for (const storage::TensorMap& of_rank : tensors)
    EXPECT_TRUE(at::allclose(of_rank.at("bn1.running_mean"), mean, 1e-10, 1e-14));
}

}  // namespace
}  // namespace sluice::engine::test
