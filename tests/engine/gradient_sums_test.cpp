// The gradients of several steps, added up on any grid of stages and replicas, are those of one device: in every layer
// the same L1 norm of the sum. In float64, while the weights move.
#include "engine/gradient_sums.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "comm/processes.h"
#include "comm/ranks.h"
#include "core/concat.h"
#include "core/error.h"
#include "engine/sync_fixture.h"

namespace sluice::engine::test {
namespace {

using testing::Each;
using testing::Gt;

struct Grid {
  const char* model = "vit";
  int stages = 2;
  int replicas = 2;
  const char* schedule = "1f1b";
  int chunks = 2;
  int frozen = 0;  // of the model's first layers, by the plan
  int virtual_stages = 1;
  double clip_norm = 0;

  [[nodiscard]] std::string text() const {
    return concat(model, ", ", stages, " stages, ", replicas, " replicas, ", schedule, ", ", chunks, " chunks, ",
                  frozen, " frozen layers, clipped to ", clip_norm);
  }
};

EngineOptions options_of(const Grid& grid, SyncFactory factory = make_sync,
                         std::shared_ptr<Communicators> communicators = nullptr) {
  const models::ModelOptions model = small_model(grid.model);
  return {.compose = {.model_name = grid.model,
                      .make_layers = [model] { return models::make_model(model).layers; },
                      .optimizer = kSgd,
                      .communicators = std::move(communicators),
                      .make_sync = std::move(factory)},
          .step = {.seed = 7, .clip_norm = grid.clip_norm, .sums_gradients = true},
          .devices_of = [](const Plan& plan) {
            DeviceChoice choice;
            for (int i = 0; i < plan.replicas * plan.devices(); ++i)
              choice.devices.push_back({device::DeviceKind::kCpu, i});
            return choice;
          }};
}

pipeline::MicroBatch batch_of(const Grid& grid, std::int64_t number) {
  const std::int64_t samples = 13 + number % 3;
  return grid.model == std::string("gpt2") ? make_token_batch(samples, number) : make_batch(samples, number);
}

void train(Engine& engine, const Grid& grid, std::int64_t from, std::int64_t to, double lr = kLr) {
  for (std::int64_t number = from; number < to; ++number)
    static_cast<void>(engine.step().run({batch_of(grid, number)}, number, lr));
}

// One device, and plain sums of its gradients.
class Reference {
 public:
  explicit Reference(const Grid& grid) : grid_(grid), model_(make_layers(grid)) {
    const auto layers = make_layers(grid);
    layers_ = static_cast<int>(layers.size());
    for (int i = 0; i < layers_; ++i)
      for (const nn::Parameter* parameter : layers[i]->parameters()) layer_of_[parameter->name] = i;
  }

  void train(std::int64_t from, std::int64_t to) {
    for (std::int64_t number = from; number < to; ++number) {
      const auto pieces = pieces_of(batch_of(grid_, number), grid_.replicas, grid_.chunks);
      const ReferenceStep step = model_.step(pieces, {.training = true, .seed = 7, .step = number});
      for (const auto& [name, gradient] : step.gradients) {
        at::Tensor& sum = sums_[name];
        sum = sum.defined() ? sum + gradient : gradient.clone();
      }
      model_.update(kSgd, kLr, grid_.clip_norm);
    }
  }
  [[nodiscard]] std::vector<double> take() {
    std::vector<double> norms(layers_);
    for (const auto& [name, sum] : sums_) norms[layer_of_.at(name)] += sum.abs().sum().item<double>();
    sums_.clear();
    return norms;
  }

 private:
  static pipeline::LayerList make_layers(const Grid& grid) {
    pipeline::LayerList layers = models::make_model(small_model(grid.model)).layers;
    for (int i = 0; i < grid.frozen; ++i)
      for (nn::Parameter* parameter : layers[i]->parameters()) parameter->value.requires_grad_(false);
    return layers;
  }

  Grid grid_;
  ReferenceModel model_;
  int layers_ = 0;
  std::map<std::string, int> layer_of_;
  storage::TensorMap sums_;
};

void expect_close(const std::vector<double>& ours, const std::vector<double>& theirs) {
  ASSERT_EQ(ours.size(), theirs.size());
  for (std::size_t i = 0; i < ours.size(); ++i) EXPECT_NEAR(ours[i], theirs[i], 1e-10 * theirs[i]) << "layer " << i;
}

class GradientSumsParity : public testing::TestWithParam<Grid> {};

TEST_P(GradientSumsParity, AreThoseOfOneDeviceAndBeginAnewWhenTaken) {
  const Grid grid = GetParam();
  SCOPED_TRACE(grid.text());
  Engine engine(plan_of(grid), options_of(grid));
  Reference reference(grid);
  for (const auto& [from, to] : {std::pair{0, 5}, {5, 6}, {6, 8}}) {
    train(engine, grid, from, to);
    reference.train(from, to);
    const std::vector<double> expected = reference.take();
    expect_close(engine.take_gradient_norms(), expected);
    EXPECT_GT(expected.back(), 0);
    for (int i = 0; i < grid.frozen; ++i) EXPECT_EQ(expected[i], 0);
  }
  EXPECT_THAT(engine.take_gradient_norms(), Each(0.0));
}

INSTANTIATE_TEST_SUITE_P(
    Grids, GradientSumsParity,
    testing::Values(Grid{"vit", 1, 1, "1f1b", 1}, Grid{"vit", 3, 2, "zb-h1", 3}, Grid{"vit", 1, 3, "1f1b", 2},
                    Grid{"vit", 4, 1, "interleaved", 4, 0, /*virtual_stages=*/2},
                    Grid{"vit", 2, 2, "1f1b", 2, 0, 1, /*clip_norm=*/0.1}, Grid{"resnet8", 3, 1, "gpipe", 2},
                    Grid{"resnet8", 2, 2, "zb-h1", 2}, Grid{"toy_cnn", 2, 2, "1f1b", 2}, Grid{"gpt2", 1, 1, "1f1b", 1},
                    Grid{"gpt2", 2, 2, "1f1b", 2}, Grid{"gpt2", 3, 1, "zb-h1", 3}, Grid{"vit", 2, 2, "1f1b", 2, 3},
                    Grid{"vit", 3, 1, "zb-h1", 3, 5}, Grid{"vit", 1, 2, "1f1b", 2, 1, 1, /*clip_norm=*/0.1}));

// What the gradients of every other step are divided by has the other sign.
class TurnsOddSteps final : public LocalSync {
 public:
  using LocalSync::LocalSync;
  void after_step(comm::StepOutcome& outcome) override { outcome.divisor = step() % 2 == 0 ? 1 : -1; }
};

TEST(GradientSums, OppositeGradientsCancel) {
  const Grid grid{"vit", 2, 2};
  Engine engine(plan_of(grid), options_of(grid, making<TurnsOddSteps>()));
  const auto step = [&](std::int64_t number) {
    static_cast<void>(engine.step().run({batch_of(grid, 0)}, number, /*lr=*/0));
  };
  step(0);
  step(1);
  EXPECT_THAT(engine.take_gradient_norms(), Each(0.0));
  step(2);
  const std::vector<double> once = engine.take_gradient_norms();
  EXPECT_THAT(once, Each(Gt(0.0)));
  step(4);
  step(6);
  std::vector<double> twice = engine.take_gradient_norms();
  for (double& norm : twice) norm /= 2;
  expect_close(twice, once);
}

TEST(GradientSums, TakeInTheStepsThatOurOptimizerUpdatesAlone) {
  const Grid grid{"vit", 2, 2};
  Engine elsewhere(plan_of(grid), options_of(grid, making<KeepsTheOptimizer>()));
  train(elsewhere, grid, 0, 2);
  EXPECT_THAT(elsewhere.take_gradient_norms(), Each(0.0));

  Engine skips(plan_of(grid), options_of(grid, making<SkipsOddSteps>())), all(plan_of(grid), options_of(grid));
  train(skips, grid, 0, 2);
  train(all, grid, 0, 1);
  EXPECT_EQ(skips.take_gradient_norms(), all.take_gradient_norms());
}

TEST(GradientSums, ChangeNoBitOfTheTraining) {
  const Grid grid{"gpt2", 2, 2, "1f1b", 2, 0, 1, /*clip_norm=*/0.1};
  EngineOptions without = options_of(grid);
  without.step.sums_gradients = false;
  Engine engine(plan_of(grid), options_of(grid)), plain(plan_of(grid), without);
  train(engine, grid, 0, 2);
  static_cast<void>(engine.take_gradient_norms());
  train(engine, grid, 2, 3);
  train(plain, grid, 0, 3);
  const State ours = engine.capture(), theirs = plain.capture();
  ASSERT_EQ(ours.model.size(), theirs.model.size());
  for (const auto& [name, tensor] : ours.model) EXPECT_TRUE(at::equal(tensor, theirs.model.at(name))) << name;
  EXPECT_THROW((void)plain.take_gradient_norms(), BugError);
}

TEST(GradientSums, BeginAnewWithACompositionButNotWithANumberOfChunks) {
  const Grid grid{"vit", 2, 2};
  Engine engine(plan_of(grid), options_of(grid));
  Reference reference(grid);
  train(engine, grid, 0, 3);
  Plan plan = plan_of(grid);
  plan.chunks = 3;
  engine.apply(plan);
  train(engine, grid, 3, 4);
  reference.train(0, 4);
  expect_close(engine.take_gradient_norms(), reference.take());

  train(engine, grid, 4, 6);
  engine.apply(plan_of(Grid{"vit", 3, 1}));
  EXPECT_THAT(engine.take_gradient_norms(), Each(0.0));
  reference.train(4, 6);
  static_cast<void>(reference.take());
  train(engine, grid, 6, 8);
  reference.train(6, 8);
  expect_close(engine.take_gradient_norms(), reference.take());
}

// Of one device that takes all samples.
TEST(GradientSums, AreTheSameInAllProcesses) {
  for (const Grid& grid : {Grid{"vit", 2, 1}, Grid{"gpt2", 1, 2}, Grid{"vit", 2, 2, "zb-h1", 2, 3}}) {
    SCOPED_TRACE(grid.text());
    Reference reference(grid);
    reference.train(0, 4);
    const std::vector<double> expected = reference.take();
    const int port = comm::test::free_port();
    std::mutex mutex;
    const auto failures = comm::test::run_ranks(2, [&](int rank) {
      comm::Processes processes(comm::test::world_of(rank, 2, port), {},
                                {std::chrono::minutes(1), std::chrono::minutes(1)});
      Engine engine(plan_of(grid), options_of(grid, make_sync, std::make_shared<Communicators>(processes)));
      for (std::int64_t number = 0; number < 4; ++number) {
        const pipeline::MicroBatch batch = batch_of(grid, number);
        const auto shares = pipeline::split(batch, 2);
        static_cast<void>(engine.step().run({shares[rank], batch.samples(), number}, number, kLr));
      }
      const std::vector<double> norms = engine.take_gradient_norms();
      const std::scoped_lock lock(mutex);
      expect_close(norms, expected);
    });
    for (const std::string& failure : failures) EXPECT_EQ(failure, "");
  }
}

}  // namespace
}  // namespace sluice::engine::test
