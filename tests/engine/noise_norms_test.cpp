// The norms that the gradient noise scale is estimated from, on any grid: those of one device's gradients of each
// replica's samples, or of the first micro-batches'. And the estimate itself beside a model whose gradients are known
// in closed form.
#include "engine/noise_norms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "comm/processes.h"
#include "comm/ranks.h"
#include "core/concat.h"
#include "engine/sync_fixture.h"
#include "pipeline/schedule/plan_schedule.h"
#include "tune/noise_scale.h"

namespace sluice::engine::test {
namespace {

struct NoiseGrid {
  const char* model = "vit";
  int stages = 1;  // of a replica
  int replicas = 2;
  const char* schedule = "1f1b";
  int chunks = 1;
  int frozen = 0;
  int processes = 1;
  int virtual_stages = 1;

  [[nodiscard]] std::string text() const {
    return concat(model, ", ", stages, " stages, ", processes, " x ", replicas, " replicas, ", schedule, ", ", chunks,
                  " chunks, ", frozen, " frozen layers");
  }
};

EngineOptions options_with(std::function<pipeline::LayerList()> layers, comm::Processes* processes = nullptr) {
  return {.compose = {.model_name = "a model",
                      .make_layers = std::move(layers),
                      .bucket_bytes = 5000,  // several buckets a stage
                      .optimizer = kSgd,
                      .communicators = processes == nullptr ? nullptr : std::make_shared<Communicators>(*processes)},
          .step = {.seed = 7},
          .devices_of = [](const Plan& plan) {
            DeviceChoice choice;
            for (int i = 0; i < plan.replicas * plan.devices(); ++i)
              choice.devices.push_back({device::DeviceKind::kCpu, i});
            return choice;
          }};
}

EngineOptions options_of(const NoiseGrid& grid, comm::Processes* processes = nullptr) {
  const models::ModelOptions model = small_model(grid.model);
  return options_with([model] { return models::make_model(model).layers; }, processes);
}

pipeline::MicroBatch batch_of(const NoiseGrid& grid) {
  return grid.model == std::string("gpt2") ? make_token_batch(13) : make_batch(13);
}

// One device, whose tied parameters are two that happen to be equal.
class OneDevice {
 public:
  explicit OneDevice(const NoiseGrid& grid) : model_(layers_of(grid)) {}

  // Of the mean loss over the pieces.
  [[nodiscard]] storage::TensorMap gradient(const std::vector<pipeline::MicroBatch>& pieces) {
    return model_.step(pieces, {.training = true, .seed = 7}).gradients;
  }

 private:
  static pipeline::LayerList layers_of(const NoiseGrid& grid) {
    pipeline::LayerList layers = models::make_model(small_model(grid.model)).layers;
    std::map<std::string, at::Tensor> values;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      for (nn::Parameter* parameter : layers[i]->parameters()) {
        values[parameter->name] = parameter->value;
        if (!parameter->tied_to.empty()) {
          parameter->value = values.at(parameter->tied_to).detach().clone().requires_grad_();
          parameter->tied_to.clear();
        }
        if (static_cast<int>(i) < grid.frozen) parameter->value.requires_grad_(false);
      }
    }
    return layers;
  }

  ReferenceModel model_;
};

double squares(const storage::TensorMap& gradient, const std::set<std::string>& names) {
  double sum = 0;
  for (const auto& [name, tensor] : gradient)
    if (names.contains(name)) sum += tensor.square().sum().item<double>();
  return sum;
}

std::set<std::string> names_of(const storage::TensorMap& gradient) {
  std::set<std::string> names;
  for (const auto& [name, tensor] : gradient) names.insert(name);
  return names;
}

double count_of(const std::vector<pipeline::MicroBatch>& pieces) {
  double samples = 0;
  for (const auto& piece : pieces) samples += static_cast<double>(piece.samples());
  return samples;
}

double targets_of(const std::vector<pipeline::MicroBatch>& pieces) {
  double targets = 0;
  for (const auto& piece : pieces) targets += piece.targets[0].ge(0).sum().item<double>();
  return targets;
}

// tr(Sigma) and |G|^2.
struct Expected {
  double trace = 0, squared_norm = 0;
};

Expected of_pairs(const GradientNorms& norms) {
  Expected sum;
  for (const GradientPair& pair : norms.parts) {
    const double n = pair.small_samples, big = pair.big_samples;
    sum.trace += (pair.small_squares - pair.big_squares) / (1 / n - 1 / big);
    sum.squared_norm += (big * pair.big_squares - n * pair.small_squares) / (big - n);
  }
  return sum;
}

// By the deviations of the replicas' means from the mean of all, weighed by targets.
Expected of_replicas(const NoiseGrid& grid) {
  OneDevice model(grid);
  const pipeline::MicroBatch batch = batch_of(grid);
  const int replicas = grid.replicas * grid.processes;
  const storage::TensorMap mean = model.gradient(pieces_of(batch, replicas, grid.chunks));
  const std::set<std::string> names = names_of(mean);
  const double all = targets_of({batch});
  double deviations = 0, per_sample = 0, of_mean = 0;
  for (const auto& share : pipeline::split(batch, replicas)) {
    if (share.samples() == 0) continue;
    const std::vector<pipeline::MicroBatch> pieces = pieces_of(share, 1, grid.chunks);
    const double v = targets_of(pieces) / all, n = count_of(pieces);
    storage::TensorMap off = model.gradient(pieces);
    for (auto& [name, tensor] : off) tensor = tensor - mean.at(name);
    deviations += v * squares(off, names);
    per_sample += v * (1 - v) / n;
    of_mean += v * v / n;
  }
  const double trace = deviations / per_sample;
  return {trace, squares(mean, names) - trace * of_mean};
}

// The micro-batches that have ended where for the first time none is half done.
std::set<int> first_done(const std::vector<pipeline::Action>& actions, StageId stage) {
  using pipeline::Op;
  std::set<int> begun, ended;
  for (const pipeline::Action& action : actions) {
    if (action.stage != stage) continue;
    const int m = index(action.micro_batch);
    if (action.op == Op::kBackward || action.op == Op::kInputGradient) begun.insert(m);
    if (action.op == Op::kBackward || action.op == Op::kWeightGradient) ended.insert(m);
    if (!begun.empty() && begun == ended) break;
  }
  return begun;
}

// Stage by stage: the gradient over those micro-batches.
Expected of_first(const NoiseGrid& grid, const Composition& composition) {
  OneDevice model(grid);
  const std::vector<pipeline::MicroBatch> all = pieces_of(batch_of(grid), 1, grid.chunks);
  const storage::TensorMap mean = model.gradient(all);
  const pipeline::Schedule schedule = pipeline::make_train_schedule(composition.plan, grid.chunks);
  Expected sum;
  for (int s = 0; s < composition.executor->stages(); ++s) {
    std::set<std::string> names;
    for (const auto& entry : composition.executor->stage(ReplicaId{0}, StageId{s}).parameters().entries())
      if (entry.is_trained) names.insert(entry.name);
    const std::set<int> begun = first_done(schedule.devices[composition.executor->owners()[s]], StageId{s});
    EXPECT_LT(begun.size(), all.size());
    std::vector<pipeline::MicroBatch> first;
    for (const int m : begun) first.push_back(all[m]);
    const double n = count_of(first), big = count_of(all);
    const double small_squares = squares(model.gradient(first), names), big_squares = squares(mean, names);
    sum.trace += (small_squares - big_squares) * n * big / (big - n);
    sum.squared_norm += (big * big_squares - n * small_squares) / (big - n);
  }
  return sum;
}

void expect_close(const Expected& ours, const Expected& theirs) {
  EXPECT_GT(theirs.trace, 0);
  EXPECT_NEAR(ours.trace, theirs.trace, 1e-9 * theirs.trace);
  EXPECT_NEAR(ours.squared_norm, theirs.squared_norm, 1e-9 * (theirs.trace + std::abs(theirs.squared_norm)));
}

class NoiseNormsParity : public testing::TestWithParam<NoiseGrid> {};

TEST_P(NoiseNormsParity, AreThoseOfOneDevice) {
  const NoiseGrid grid = GetParam();
  SCOPED_TRACE(grid.text());
  const pipeline::MicroBatch batch = batch_of(grid);
  std::mutex mutex;
  const auto check_one = [&](Engine& engine, const StepBatch& own) {
    const StepStats stats = engine.step().run(own, 0, kLr, {.take_norms = true});
    const std::scoped_lock lock(mutex);  // GoogleTest's expectations
    ASSERT_TRUE(stats.norms);
    EXPECT_GT(stats.norms->duration, 0);
    const bool is_one = grid.replicas * grid.processes == 1;
    EXPECT_EQ(stats.norms->parts.size(), is_one ? grid.stages : 1);
    expect_close(of_pairs(*stats.norms), is_one ? of_first(grid, engine.composition()) : of_replicas(grid));
  };
  if (grid.processes == 1) {
    Engine engine(plan_of(grid), options_of(grid));
    check_one(engine, batch);
    EXPECT_FALSE(engine.step().run(batch, 1, kLr).norms) << "nobody asked";
    return;
  }
  const int port = comm::test::free_port();
  const auto failures = comm::test::run_ranks(grid.processes, [&](int rank) {
    comm::Processes processes(comm::test::world_of(rank, grid.processes, port), {},
                              {std::chrono::minutes(1), std::chrono::minutes(1)});
    Engine engine(plan_of(grid), options_of(grid, &processes));
    const auto replicas = pipeline::split(batch, grid.processes * grid.replicas);
    std::vector<at::Tensor> inputs, targets, ids;
    for (int r = rank * grid.replicas; r < (rank + 1) * grid.replicas; ++r) {
      inputs.push_back(replicas[r].inputs[0]);
      targets.push_back(replicas[r].targets[0]);
      ids.push_back(replicas[r].sample_ids);
    }
    check_one(engine, {{{at::cat(inputs)}, {at::cat(targets)}, at::cat(ids)}, batch.samples()});
  });
  EXPECT_THAT(failures, testing::Each(""));
}

INSTANTIATE_TEST_SUITE_P(
    Grids, NoiseNormsParity,
    testing::Values(NoiseGrid{"vit", 1, 2}, NoiseGrid{"vit", 2, 3, "1f1b", 2}, NoiseGrid{"gpt2", 2, 2, "zb-h1", 3},
                    NoiseGrid{"resnet8", 1, 2, "1f1b", 2}, NoiseGrid{"vit", 2, 2, "1f1b", 2, 3},
                    NoiseGrid{"toy_cnn", 1, 2, "1f1b", 1, 0, 2}, NoiseGrid{"gpt2", 2, 2, "1f1b", 2, 0, 2},
                    NoiseGrid{"vit", 1, 1, "1f1b", 1, 0, 3}, NoiseGrid{"vit", 1, 1, "1f1b", 4},
                    NoiseGrid{"toy_cnn", 2, 1, "gpipe", 4}, NoiseGrid{"resnet8", 2, 1, "1f1b", 3},
                    NoiseGrid{"gpt2", 4, 1, "zb-v", 6, 0, 1, 2}, NoiseGrid{"vit", 4, 1, "interleaved", 4, 0, 1, 2},
                    NoiseGrid{"vit", 4, 1, "zb-v", 6, 0, 1, 2}, NoiseGrid{"vit", 1, 1, "1f1b", 3, 4}));

TEST(NoiseNorms, ThereAreNoneWhereNoTwoBatchesCanBeCompared) {
  const NoiseGrid alone{"vit", 1, 1};
  Engine engine(plan_of(alone), options_of(alone));
  EXPECT_FALSE(engine.step().run(make_batch(13), 0, kLr, {.take_norms = true}).norms);
  EXPECT_THAT(why_no_noise_norms(plan_of(alone), 1), testing::HasSubstr("set pipeline.chunks to 2 or more"));
  EXPECT_EQ(why_no_noise_norms(plan_of(alone), 2), "");
  EXPECT_EQ(why_no_noise_norms(plan_of(NoiseGrid{"vit", 1, 1, "1f1b", 2}), 1), "");

  const NoiseGrid two{"vit", 1, 2};
  Engine replicas(plan_of(two), options_of(two));
  EXPECT_FALSE(replicas.step().run(make_batch(1), 0, kLr, {.take_norms = true}).norms) << "the second has no sample";
  EXPECT_TRUE(replicas.step().run(make_batch(2), 1, kLr, {.take_norms = true}).norms);
}

// For every plan: what is said beforehand is what a step then gives.
TEST(NoiseNorms, WhatIsSaidBeforehandIsWhatAStepGives) {
  int with = 0, without = 0;
  for (const char* schedule : {"1f1b", "gpipe", "zb-h1", "zb-h2"}) {
    for (const int chunks : {1, 2, 3, 4, 6}) {
      const NoiseGrid grid{"toy_cnn", 2, 1, schedule, chunks};
      Engine engine(plan_of(grid), options_of(grid));
      const bool has_norms = engine.step().run(make_batch(13), 0, kLr, {.take_norms = true}).norms.has_value();
      EXPECT_EQ(why_no_noise_norms(plan_of(grid), 1).empty(), has_norms) << grid.text();
      (has_norms ? with : without) += 1;
    }
  }
  EXPECT_GT(with, 4);
  EXPECT_GT(without, 4);
}

TEST(NoiseNorms, ChangeNoBitOfTheTraining) {
  for (const NoiseGrid& grid : {NoiseGrid{"gpt2", 2, 2, "1f1b", 2}, NoiseGrid{"vit", 2, 1, "zb-h1", 4}}) {
    Engine engine(plan_of(grid), options_of(grid)), plain(plan_of(grid), options_of(grid));
    for (std::int64_t number = 0; number < 3; ++number) {
      const StepStats ours = engine.step().run(batch_of(grid), number, kLr, {.take_norms = true});
      EXPECT_EQ(ours.loss, plain.step().run(batch_of(grid), number, kLr).loss);
    }
    const State ours = engine.capture(), theirs = plain.capture();
    for (const auto& [name, tensor] : ours.model) EXPECT_TRUE(at::equal(tensor, theirs.model.at(name))) << name;
  }
}

constexpr int kWidth = 6, kClasses = 3;

class Softmax final : public nn::Layer {
 public:
  Softmax()
      : Layer("fc"),
        weight_{"fc.weight", at::zeros({kClasses, kWidth}, at::kDouble).requires_grad_()},
        bias_{"fc.bias", at::zeros({kClasses}, at::kDouble).requires_grad_()} {}
  at::Tensor forward(const at::Tensor& input, const nn::ForwardContext&) override {
    return at::linear(input, weight_.value, bias_.value);
  }
  std::vector<nn::Parameter*> parameters() override { return {&weight_, &bias_}; }

 private:
  nn::Parameter weight_, bias_;
};

// Regression onto classes at weights of 0, where every class has p = 1 / C: the gradient of a sample (x, y) is
// (p - e_y) (x, 1)'. With y drawn by q independently of x, which is normal around mu with deviation s:
//   |G|^2 = |p - q|^2 (|mu|^2 + 1)        tr(Sigma) + |G|^2 = (1 - 1 / C) (|mu|^2 + s^2 d + 1)
// The rate is 0, so the weights stay.
TEST(NoiseScale, IsThatOfRegressionInClosedForm) {
  const std::vector<double> q{0.7, 0.2, 0.1};
  constexpr double kMean = 0.5, kDeviation = 0.8;
  double bias_squared = 0;
  for (const double share : q) bias_squared += (1.0 / kClasses - share) * (1.0 / kClasses - share);
  const double of_x = kWidth * kMean * kMean + 1;
  const double norm = bias_squared * of_x;
  const double trace = (1 - 1.0 / kClasses) * (of_x + kWidth * kDeviation * kDeviation) - norm;
  for (const NoiseGrid& grid :
       {NoiseGrid{"softmax", 1, 3}, NoiseGrid{"softmax", 1, 2, "1f1b", 2}, NoiseGrid{"softmax", 1, 1, "1f1b", 4}}) {
    SCOPED_TRACE(grid.text());
    Plan plan{.replicas = grid.replicas, .chunks = grid.chunks, .schedule = grid.schedule};
    plan.partition.layers_per_stage = {1};
    Engine engine(plan, options_with([] {
                    pipeline::LayerList layers;
                    layers.push_back(std::make_unique<Softmax>());
                    return layers;
                  }));
    std::mt19937_64 random(11);
    std::normal_distribution<double> normal(kMean, kDeviation);
    std::discrete_distribution<std::int64_t> classes(q.begin(), q.end());
    tune::NoiseAverage average;
    for (std::int64_t number = 0; number < 1500; ++number) {
      const std::int64_t samples = 22 + number % 3;  // they divide by nothing
      const at::Tensor inputs = at::empty({samples, kWidth}, at::kDouble), targets = at::empty({samples}, at::kLong);
      for (std::int64_t i = 0; i < inputs.numel(); ++i) inputs.mutable_data_ptr<double>()[i] = normal(random);
      for (std::int64_t i = 0; i < samples; ++i) targets.mutable_data_ptr<std::int64_t>()[i] = classes(random);
      const StepStats stats = engine.step().run(pipeline::MicroBatch{{inputs}, {targets}, at::arange(samples)}, number,
                                                /*lr=*/0, {.take_norms = true});
      ASSERT_TRUE(stats.norms);
      const Expected one = of_pairs(*stats.norms);
      average.add({one.trace, one.squared_norm});
    }
    const auto found = average.noise_scale();
    ASSERT_TRUE(found);
    EXPECT_NEAR(found->trace, trace, 4 * found->trace_error);
    EXPECT_NEAR(found->squared_norm, norm, 4 * found->squared_norm_error);
    EXPECT_NEAR(found->samples, trace / norm, 4 * found->error);
    EXPECT_LT(found->error, 0.1 * found->samples) << "else anything would do";
  }
}

}  // namespace
}  // namespace sluice::engine::test
