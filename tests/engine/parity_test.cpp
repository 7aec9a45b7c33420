// Parity: every schedule, number of stages, chunks and replicas gives the gradient of one device that takes the whole
// mini-batch at once. In float64, to 1e-10. CI takes a part of the grids, the long tests take all of them.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <set>

#include "core/concat.h"
#include "engine/step_equals.h"
#include "pipeline/schedule/generators.h"
#include "support/long_tests.h"
#include "support/toy_model.h"

namespace sluice::engine::test {
namespace {

struct GridCase {
  std::string model;
  std::string schedule;
  int devices;  // of a replica
  int replicas;
  bool recompute;
  bool in_ci = true;
};

std::vector<GridCase> all_cases() {
  std::vector<GridCase> cases;
  for (const std::string model : {"vit", "toy_cnn"}) {
    const int layers = models::count_layers(small_model(model));
    for (const std::string& schedule : pipeline::schedule_names()) {
      for (const int devices : {1, 2, 3, 4}) {
        if (devices * pipeline::default_virtual_stages(schedule) > layers) continue;
        // CI takes one of these four, in turns, so that every pair of choices occurs.
        for (const int replicas : {1, 2}) {
          for (const bool recompute : {false, true}) {
            const std::size_t n = cases.size();
            cases.push_back({model, schedule, devices, replicas, recompute, n % 4 == (n / 4 + n / 16) % 4});
          }
        }
      }
    }
  }
  return cases;
}

Composition grid_of(const models::ModelOptions& model, const GridCase& c,
                    const optim::OptimizerOptions& optimizer = {.kind = "sgd"}) {
  Plan plan{
      .replicas = c.replicas, .schedule = c.schedule, .virtual_stages = pipeline::default_virtual_stages(c.schedule)};
  plan.recompute.assign(c.devices * plan.virtual_stages, c.recompute);
  return make_grid(model, plan, c.devices, optimizer);
}

class Parity : public testing::TestWithParam<GridCase> {};

TEST_P(Parity, EveryNumberOfChunksGivesThePlainGradient) {
  if (!GetParam().in_ci && !sluice::test::runs_long_tests()) GTEST_SKIP() << "long: CI takes a quarter of the grid";
  const models::ModelOptions model = small_model(GetParam().model);
  ReferenceModel one_device(model);
  Composition grid = grid_of(model, GetParam());
  // 13 samples divide by nothing; of 5 and of 1 there are fewer than chunks, or even than replicas.
  const std::vector<std::pair<std::int64_t, std::vector<int>>> batches{
      {13, {1, 2, 3, 4, 5, 6, 7, 8}}, {5, {4, 8}}, {1, {1, 2}}};
  for (const auto& [samples, chunk_numbers] : batches) {
    const pipeline::MicroBatch batch = make_batch(samples);
    const ReferenceStep reference = one_device.step({batch}, training_context());
    for (const int chunks : chunk_numbers) {
      if (chunks >= pipeline::least_micro_batches(GetParam().schedule, GetParam().devices))
        expect_step_equals(grid, batch, chunks, reference);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Grid, Parity, testing::ValuesIn(all_cases()), [](const auto& param_info) {
  const GridCase& c = param_info.param;
  std::string schedule = c.schedule;
  std::ranges::replace(schedule, '-', '_');
  return concat(c.model, "_", schedule, "_", c.devices, "devices_", c.replicas, "replicas",
                c.recompute ? "_recompute" : "");
});

// Replicas with fewer micro-batches than others are filled up with empty ones.
TEST(ParityOfShares, AnySharesGiveThePlainGradient) {
  const pipeline::MicroBatch batch = make_batch(13);
  for (const std::string name : {"vit", "toy_cnn"}) {
    const models::ModelOptions model = small_model(name);
    const ReferenceStep reference = ReferenceModel(model).step({batch}, training_context());
    for (const std::string& schedule : pipeline::schedule_names()) {
      Composition grid = grid_of(model, {name, schedule, 2, 3, false});
      for (const auto& [shares, chunks] : {std::pair{std::vector{1, 3, 2}, 4}, {{9, 0, 1}, 2}, {{0, 100, 1}, 1}}) {
        grid.plan.shares = shares;
        SCOPED_TRACE(concat(name, ", ", schedule, ", ", chunks, " chunks, shares ", shares[0], " ", shares[1]));
        if (chunks >= pipeline::least_micro_batches(schedule, 2)) expect_step_equals(grid, batch, chunks, reference);
      }
    }
  }
}

// Orders that no generator makes: other micro-batches first, halves of backwards far apart, stages on devices of any
// number, whole and split backwards beside each other, a pair.
TEST(ParityOfAScheduleFile, WhateverRunsFirstTheGradientIsThePlainOne) {
  struct File {
    std::string text;
    int devices, virtual_stages, chunks;
  };
  const std::vector<File> files{
      {"0F1 0F0 0F2 0B1 0B0 0B2\n1F1 1F0 1B1 1F2 1B0 1B2\n", 2, 1, 3},
      {"2F2 2I2 2F0 2I0 2F1 2W2 2B1 2W0\n0F2 0F0 0F1 0I2 0I0 0B1 0W0 0W2\n1F2 1F0 1I2 1F1 1I0 1W2 1W0 1B1\n", 3, 1, 3},
      {"0F0 0F1 3F0 (3F1;3B0) 3I1 0I0 0B1 3W1 0W0 3REDUCE_GRAD 0REDUCE_GRAD\n"
       "1F0 2F0 1F1 2F1 2B0 1B0 2B1 1B1 1REDUCE_GRAD 2REDUCE_GRAD\n",
       2, 2, 2}};
  const pipeline::MicroBatch batch = make_batch(13);
  for (const std::string name : {"vit", "toy_cnn"}) {
    const models::ModelOptions model = small_model(name);
    const ReferenceStep reference = ReferenceModel(model).step({batch}, training_context());
    for (const auto& [text, devices, virtual_stages, chunks] : files) {
      for (const int replicas : {1, 2}) {
        SCOPED_TRACE(concat(name, ", ", replicas, " replicas of\n", text));
        const Plan plan{
            .replicas = replicas, .schedule = Plan::kFromFile, .schedule_text = text, .virtual_stages = virtual_stages};
        Composition grid = make_grid(model, plan, devices);
        expect_step_equals(grid, batch, chunks, reference);
      }
    }
  }
}

TEST(ParityWithDropout, MasksBelongToTheSampleAndTheStepAndNotToTheCut) {
  const models::ModelOptions model = small_model("vit", /*dropout=*/0.1);
  ReferenceModel one_device(model);
  const pipeline::MicroBatch batch = make_batch(13);
  const ReferenceStep reference = one_device.step({batch}, training_context());
  const ReferenceStep without = ReferenceModel(small_model("vit")).step({batch}, training_context());
  EXPECT_GT(worst_error(without.gradients, reference.gradients).error, 0.01) << "dropout does nothing";
  for (const std::string schedule : {"gpipe", "1f1b", "looped-bfs", "zb-h1", "zb-v"}) {
    for (const int devices : {1, 3}) {
      for (const bool recompute : {false, true}) {
        const GridCase c{"vit", schedule, devices, /*replicas=*/2, recompute};
        SCOPED_TRACE(concat(schedule, ", ", devices, " devices, recompute ", recompute));
        Composition grid = grid_of(model, c);
        for (const int chunks : {1, 4, 8}) expect_step_equals(grid, batch, chunks, reference);
      }
    }
  }
}

struct UpdateCase {
  optim::OptimizerOptions optimizer;
  int stages;
  int replicas;
  int chunks;
};

TEST(ParityOfTraining, ThreeUpdatesGiveTheParametersOfOneDevice) {
  const std::vector<UpdateCase> cases{
      {{.kind = "sgd", .weight_decay = 0.01}, 2, 1, 3},
      {{.kind = "momentum", .momentum = 0.9, .nesterov = true, .weight_decay = 0.01}, 3, 2, 2},
      {{.kind = "adam", .weight_decay = 0.01, .eps = 1e-4}, 1, 2, 1},
      {{.kind = "adamw", .weight_decay = 0.1, .eps = 1e-4}, 4, 2, 4}};
  for (const std::string name : {"vit", "toy_cnn"}) {
    for (const UpdateCase& c : cases) {
      SCOPED_TRACE(concat(name, " with ", c.optimizer.kind));
      const models::ModelOptions model = small_model(name);
      ReferenceModel one_device(model);
      Composition grid = make_grid(model, "1f1b", c.stages, c.replicas, c.optimizer);
      grid.plan.chunks = c.chunks;
      TrainStep step(grid, {.seed = kSeed});
      for (std::int64_t number = 0; number < 3; ++number) {
        const pipeline::MicroBatch batch = make_batch(13 - number, number + 1);
        nn::ForwardContext context = training_context();
        context.step = number;
        const double lr = 0.1 / static_cast<double>(number + 1);
        const double loss = one_device.train(batch, context, c.optimizer, lr);
        EXPECT_NEAR(step.run(batch, number, lr).loss, loss, kTolerance * loss);
      }
      const auto [error, tensor] = worst_error(model_tensors(grid), one_device.tensors());
      EXPECT_LE(error, kTolerance) << tensor;
    }
  }
}

TEST(ParityWithRecompute, GradientsAndRunningStatisticsAreEqualBitForBit) {
  for (const std::string name : {"vit", "resnet8"}) {
    const models::ModelOptions model = small_model(name, name == "vit" ? 0.1 : 0.0);
    for (const std::string schedule : {"1f1b", "zb-h1"}) {
      SCOPED_TRACE(concat(name, " ", schedule));
      std::vector<storage::TensorMap> gradients, tensors;
      for (const bool recompute : {false, true}) {
        Composition grid = grid_of(model, GridCase{name, schedule, 2, 2, recompute});
        TrainStep step(grid, {.seed = kSeed});
        (void)step.compute_gradients(make_batch(13), kStep, 3);
        gradients.push_back(gradient_tensors(grid));
        tensors.push_back(model_tensors(grid));
      }
      for (const auto& [tensor, value] : gradients[0]) EXPECT_TRUE(at::equal(value, gradients[1].at(tensor))) << tensor;
      for (const auto& [tensor, value] : tensors[0]) EXPECT_TRUE(at::equal(value, tensors[1].at(tensor))) << tensor;
    }
  }
}

// Token table and head's matrix are one parameter in the first and the last stage; micro-batches have different numbers
// of targets, some none.
TEST(ParityOfTiedGpt, ThreeClippedUpdatesGiveTheParametersOfOneDevice) {
  const models::ModelOptions model = small_model("gpt2", /*dropout=*/0.1);
  const int layers = models::count_layers(model);
  for (const std::string& schedule : pipeline::schedule_names()) {
    for (const int devices : {1, 2, 3}) {
      if (devices * pipeline::default_virtual_stages(schedule) > layers) continue;
      const GridCase c{"gpt2", schedule, devices, /*replicas=*/1 + devices % 2, /*recompute=*/devices == 2};
      SCOPED_TRACE(concat(schedule, " on ", devices, " devices"));
      const optim::OptimizerOptions optimizer{.kind = "adamw", .weight_decay = 0.1, .eps = 1e-4};
      Composition grid = grid_of(model, c, optimizer);
      grid.plan.chunks = 6;
      ReferenceModel one_device(model);
      TrainStep step(grid, {.seed = kSeed, .clip_norm = 0.5});
      for (std::int64_t number = 0; number < 3; ++number) {
        const pipeline::MicroBatch batch = make_token_batch(13 - number, number + 1);
        nn::ForwardContext context = training_context();
        context.step = number;
        const double loss = one_device.train(batch, context, optimizer, 0.05, 0.5);
        const StepStats stats = step.run(batch, number, 0.05);
        EXPECT_NEAR(stats.loss, loss, kTolerance * loss);
        EXPECT_GT(stats.gradient_norm.value_or(0), 0.5) << "nothing was clipped";
      }
      const auto [error, tensor] = worst_error(model_tensors(grid), one_device.tensors());
      EXPECT_LE(error, kTolerance) << tensor;
      EXPECT_EQ(grid.tied.size(), 1U);
    }
  }
}

TEST(ParityWithBatchNorm, EachMicroBatchIsNormalisedByItself) {
  const models::ModelOptions model = small_model("resnet8");
  const pipeline::MicroBatch batch = make_batch(13);
  for (const int replicas : {1, 2}) {
    for (const int stages : {1, 3}) {
      SCOPED_TRACE(concat(stages, " stages, ", replicas, " replicas"));
      Composition grid = make_grid(model, "1f1b", stages, replicas);
      for (const int chunks : {1, 2, 3}) {
        ReferenceModel one_device(model);
        const auto reference = one_device.step(pieces_of(batch, replicas, chunks), training_context());
        expect_step_equals(grid, batch, chunks, reference);
      }
    }
  }
}

TEST(ParityWithBatchNorm, MicroBatchesOfOneReplicaEnterTheRunningStatisticsInTurn) {
  const models::ModelOptions model = small_model("resnet8");
  const pipeline::MicroBatch batch = make_batch(13);
  for (const std::string schedule : {"gpipe", "1f1b", "eager-1f1b", "looped-bfs"}) {
    ReferenceModel one_device(model);
    (void)one_device.step(pieces_of(batch, 1, 3), training_context());
    Composition grid = make_grid(model, schedule, 2, 1);
    TrainStep step(grid, {.seed = kSeed});
    (void)step.compute_gradients(batch, kStep, 3);
    const auto [error, name] = worst_error(model_tensors(grid), one_device.tensors());
    EXPECT_LE(error, kTolerance) << name;
  }
}

TEST(ParityWithSynchronisedBatchNorm, AMicroBatchIsNormalisedOverAllReplicas) {
  const models::ModelOptions model = small_model("resnet8");
  for (int turn = 0; const std::string schedule : {"1f1b", "zb-h1", "zb-v", "interleaved"}) {
    for (const int replicas : {1, 2, 3}) {
      ++turn;
      for (const bool recompute : {false, true}) {
        if (turn % 2 == (recompute ? 1 : 0) && !sluice::test::runs_long_tests()) continue;  // CI: in turns
        // Of 13 samples in 8 chunks, some micro-batches are empty in some of three replicas; of 4 in most.
        for (const std::int64_t samples : {13, 4}) {
          for (const int chunks : {1, 3, 8}) {
            SCOPED_TRACE(concat(schedule, ", ", replicas, " replicas, recompute ", recompute, ", ", samples,
                                " samples in ", chunks, " chunks"));
            const pipeline::MicroBatch batch = make_batch(samples);
            ReferenceModel one_device(model);
            const auto reference = one_device.step(joined_micro_batches(batch, replicas, chunks), training_context());
            Composition grid = grid_of(model, GridCase{"resnet8", schedule, 2, replicas, recompute});
            TrainStep step(grid, {.seed = kSeed, .numerics = {.batch_norm = nn::BatchNormMode::kSync}});
            const auto result = step.compute_gradients(batch, kStep, chunks);
            EXPECT_NEAR(result.stats.loss, reference.loss, kTolerance * reference.loss);
            const auto [error, name] =
                worst_error(divided(gradient_tensors(grid), result.divisor), reference.gradients);
            EXPECT_LE(error, kTolerance) << name;
            const auto [of_tensors, tensor] = worst_error(model_tensors(grid), one_device.tensors());
            EXPECT_LE(of_tensors, kTolerance) << tensor;
          }
        }
      }
    }
  }
}

// What the first batch-norm sees does not depend on the cut, so plain operations can say what it should have found.
struct FirstBatchNorm {
  at::Tensor mean, variance;  // running, after one step from 0 and 1 with momentum 0.1
};

FirstBatchNorm first_batch_norm(const at::Tensor& inputs, const at::Tensor& weight) {
  const at::Tensor x = at::conv2d(inputs, weight, {}, 1, 1);
  return {0.1 * x.mean({0, 2, 3}), 0.9 + 0.1 * x.var(at::IntArrayRef{0, 2, 3}, /*unbiased=*/true)};
}

void expect_equal_statistics(const Composition& grid) {
  for (int stage = 0; stage < grid.plan.stages(); ++stage) {
    const auto statistics = [&](int replica) {
      return grid.executor->stage(ReplicaId{replica}, StageId{stage}).parameters().running_statistics();
    };
    for (int replica = 1; replica < grid.plan.replicas; ++replica)
      EXPECT_TRUE(at::equal(statistics(0), statistics(replica))) << "replica " << replica << " stage " << stage;
  }
}

TEST(ParityWithBatchNorm, DeferredRunningStatisticsAreThoseOfTheWholeMiniBatch) {
  const models::ModelOptions model = small_model("resnet8");
  const pipeline::MicroBatch batch = make_batch(13);
  for (const int replicas : {1, 2, 3}) {
    for (const int chunks : {1, 2, 4, 8}) {
      SCOPED_TRACE(concat(replicas, " replicas, ", chunks, " chunks"));
      Composition grid = make_grid(model, "1f1b", 2, replicas);
      TrainStep step(grid, {.seed = kSeed, .numerics = {.batch_norm = nn::BatchNormMode::kDeferred}});
      (void)step.compute_gradients(batch, kStep, chunks);
      const storage::TensorMap tensors = model_tensors(grid);
      const auto expected = first_batch_norm(batch.inputs[0], tensors.at("conv1.weight"));
      EXPECT_TRUE(at::allclose(tensors.at("bn1.running_mean"), expected.mean, 1e-10, 1e-14));
      EXPECT_TRUE(at::allclose(tensors.at("bn1.running_var"), expected.variance, 1e-10, 1e-14));
      EXPECT_EQ(tensors.at("bn1.num_batches_tracked").item<std::int64_t>(), 1);
      expect_equal_statistics(grid);
    }
  }
}

TEST(ParityWithBatchNorm, ReplicasMergeTheirStatisticsBySamplesAndThenAgree) {
  const models::ModelOptions model = small_model("resnet8");
  const pipeline::MicroBatch batch = make_batch(13);  // 7 and 6
  Composition grid = make_grid(model, "1f1b", 2, 2);
  TrainStep step(grid, {.seed = kSeed});
  (void)step.compute_gradients(batch, kStep, 1);
  const storage::TensorMap tensors = model_tensors(grid);
  const auto shares = pipeline::split(batch, 2);
  const auto first = first_batch_norm(shares[0].inputs[0], tensors.at("conv1.weight"));
  const auto second = first_batch_norm(shares[1].inputs[0], tensors.at("conv1.weight"));
  const auto merged = [](const at::Tensor& a, const at::Tensor& b) { return (a * 7 + b * 6) / 13; };
  EXPECT_TRUE(at::allclose(tensors.at("bn1.running_mean"), merged(first.mean, second.mean), 1e-10, 1e-14));
  EXPECT_TRUE(at::allclose(tensors.at("bn1.running_var"), merged(first.variance, second.variance), 1e-10, 1e-14));
  expect_equal_statistics(grid);
}

TEST(ParityWithBatchNorm, AReplicaWithoutSamplesTakesOverStatisticsAndTheirNumber) {
  const pipeline::MicroBatch batch = make_batch(13);
  Composition grid = make_grid(small_model("resnet8"), "1f1b", 2, 2);
  grid.plan.shares = {0, 1};
  TrainStep step(grid, {.seed = kSeed});
  (void)step.compute_gradients(batch, kStep, 1);
  const storage::TensorMap tensors = model_tensors(grid);
  EXPECT_EQ(tensors.at("bn1.num_batches_tracked").item<std::int64_t>(), 2);  // micro-batches of an equal share
  expect_equal_statistics(grid);
}

TEST(Replicas, EachSeesSamplesOfItsOwnAndTogetherAllOfThem) {
  std::mutex mutex;
  std::vector<std::set<std::int64_t>> seen;
  ComposeOptions options{.model_name = "probe", .optimizer = {.kind = "sgd"}};
  options.make_layers = [&] {
    const std::size_t replica = seen.size();
    seen.emplace_back();
    auto layers = models::make_model(small_model("toy_cnn")).layers;
    layers.insert(layers.begin(),
                  std::make_unique<sluice::test::ProbeLayer>("probe", [&, replica](const auto& context) {
                    const std::scoped_lock lock(mutex);
                    for (std::int64_t i = 0; i < context.sample_ids.size(0); ++i)
                      EXPECT_TRUE(seen[replica].insert(context.sample_ids[i].template item<std::int64_t>()).second)
                          << "seen twice";
                  }));
    return layers;
  };
  constexpr int kReplicas = 3;
  for (int i = 0; i < kReplicas; ++i) options.devices.push_back({device::DeviceKind::kCpu, i});
  const int layers = static_cast<int>(models::make_model(small_model("toy_cnn")).layers.size()) + 1;
  Composition grid = compose({.partition = {{layers}}, .replicas = kReplicas}, options);
  const pipeline::MicroBatch batch = make_batch(13);
  TrainStep step(grid, {.seed = kSeed});
  (void)step.compute_gradients(batch, kStep, /*chunks=*/2);

  std::set<std::int64_t> all;
  std::vector<std::size_t> shares;
  for (const auto& of_replica : seen) {
    all.insert(of_replica.begin(), of_replica.end());
    shares.push_back(of_replica.size());
  }
  EXPECT_EQ(shares, (std::vector<std::size_t>{5, 4, 4}));
  EXPECT_EQ(all.size(), 13U) << "two replicas saw the same sample";
}

}  // namespace
}  // namespace sluice::engine::test
