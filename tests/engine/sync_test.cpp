// TrainStep obeys what a sync says: an optimizer that runs elsewhere, weights that it replaces, steps and micro-batches
// that it drops. And parameters that are not trained are none of anybody's. In float64.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "core/concat.h"
#include "ddp/local_sum.h"
#include "engine/engine.h"
#include "engine/reference.h"

namespace sluice::engine::test {
namespace {

constexpr double kLr = 0.01;
constexpr double kTolerance = 1e-12;
const optim::OptimizerOptions kAdam{.kind = "adamw", .weight_decay = 0.01};
const optim::OptimizerOptions kSgd{.kind = "sgd"};

// Adds up the replicas of this process, and is asked what comes of it.
class LocalSync : public comm::ReplicaSync {
 public:
  explicit LocalSync(SyncRequest request) : sum_(std::move(request.stages), /*bucket_bytes=*/400) {}

  [[nodiscard]] bool begin_step() override {
    ++step_;
    sum_.begin_step();
    return before_step();
  }
  void on_grad_ready(ReplicaId replica, ParamId param) override { sum_.on_grad_ready(replica, param); }
  void on_backward_done(ReplicaId replica, StageId stage) override { sum_.on_backward_done(replica, stage); }
  [[nodiscard]] comm::StepOutcome finish_step(const comm::Contribution& local) override {
    sum_.finish_step();
    comm::StepOutcome outcome{.total = local};
    after_step(outcome);
    return outcome;
  }

 protected:
  virtual bool before_step() { return false; }
  virtual void after_step(comm::StepOutcome&) {}
  [[nodiscard]] int step() const { return step_; }
  // A parameter's part of replica 0's values or gradients.
  [[nodiscard]] static at::Tensor part_of(const std::vector<at::Tensor>& flat, const comm::Extent& extent) {
    return flat.front().narrow(0, extent.begin, extent.end - extent.begin);
  }
  template <typename Visit>
  void for_each_extent(const Visit& visit) const {
    for (const comm::SyncedStage& stage : sum_.stages()) {
      for (const comm::Extent& extent : stage.extents) visit(stage, extent);
    }
  }

 private:
  ddp::LocalSum sum_;
  int step_ = -1;
};

// The values of the parameters that are not tied, as they are when it is asked for them first.
class WithInitialWeights : public LocalSync {
 public:
  explicit WithInitialWeights(SyncRequest request) : LocalSync(std::move(request)) {}

 protected:
  void put_back_initial_weights() {
    const at::NoGradGuard no_grad;
    for_each_extent([&](const comm::SyncedStage& stage, const comm::Extent& extent) {
      if (extent.tied_to.empty()) part_of(stage.values, extent).copy_(initial_.at(extent.name));
    });
  }
  bool before_step() override {
    if (step() > 0) return false;
    for_each_extent([&](const comm::SyncedStage& stage, const comm::Extent& extent) {
      initial_[extent.name] = part_of(stage.values, extent).clone();
    });
    return false;
  }

 private:
  std::map<std::string, at::Tensor> initial_;
};

class ReplacesWeightsBeforeTheThirdStep final : public WithInitialWeights {
 public:
  using WithInitialWeights::WithInitialWeights;
  bool before_step() override {
    static_cast<void>(WithInitialWeights::before_step());
    if (step() == 2) put_back_initial_weights();
    return step() == 2;
  }
};

class ReplacesWeightsAfterTheThirdStep final : public WithInitialWeights {
 public:
  using WithInitialWeights::WithInitialWeights;
  void after_step(comm::StepOutcome& outcome) override {
    if (step() != 2) return;
    put_back_initial_weights();
    outcome.update = comm::Update::kSkipped;
    outcome.weights_replaced = true;
  }
};

// Gradient descent of its own.
class KeepsTheOptimizer final : public LocalSync {
 public:
  using LocalSync::LocalSync;
  void after_step(comm::StepOutcome& outcome) override {
    const at::NoGradGuard no_grad;
    std::map<std::string, at::Tensor> gradients;  // by the name of the owner
    for_each_extent([&](const comm::SyncedStage& stage, const comm::Extent& extent) {
      at::Tensor& sum = gradients[extent.tied_to.empty() ? extent.name : extent.tied_to];
      const at::Tensor own = part_of(stage.gradients, extent);
      sum = sum.defined() ? sum + own : own.clone();
    });
    for_each_extent([&](const comm::SyncedStage& stage, const comm::Extent& extent) {
      if (extent.tied_to.empty()) part_of(stage.values, extent).sub_(gradients.at(extent.name), kLr);
    });
    outcome.update = comm::Update::kElsewhere;
    outcome.weights_replaced = true;
  }
};

class SkipsOddSteps final : public LocalSync {
 public:
  using LocalSync::LocalSync;
  void after_step(comm::StepOutcome& outcome) override {
    if (step() % 2 == 1) outcome.update = comm::Update::kSkipped;
  }
};

// All of replica 0's micro-batches, and the first of each other replica's.
class AdmitsFew final : public LocalSync {
 public:
  using LocalSync::LocalSync;
  [[nodiscard]] static bool takes(ReplicaId replica, MicroBatchId micro_batch) {
    return replica == ReplicaId{0} || micro_batch == MicroBatchId{0};
  }
  [[nodiscard]] bool admits(ReplicaId replica, MicroBatchId micro_batch) override {
    return takes(replica, micro_batch);
  }
};

class AdmitsNone final : public LocalSync {
 public:
  using LocalSync::LocalSync;
  [[nodiscard]] bool admits(ReplicaId, MicroBatchId) override { return false; }
  void after_step(comm::StepOutcome& outcome) override { outcome.update = comm::Update::kSkipped; }
};

template <typename Sync>
SyncFactory making() {
  return [](SyncRequest request) { return std::make_shared<Sync>(std::move(request)); };
}

struct Shape {
  const char* model = "vit";
  int stages = 2;
  int replicas = 2;
  const char* schedule = "1f1b";
  int chunks = 2;
};

class SyncTest : public testing::Test {
 protected:
  [[nodiscard]] static std::unique_ptr<Engine> make_engine(const Shape& shape, const SyncFactory& factory,
                                                           const optim::OptimizerOptions& optimizer,
                                                           TrainStepOptions step = {.seed = 7}, int frozen_layers = 0) {
    const models::ModelOptions model = small_model(shape.model);
    const auto make_layers = [model, frozen_layers] {
      pipeline::LayerList layers = models::make_model(model).layers;
      for (int i = 0; i < frozen_layers; ++i) {
        for (nn::Parameter* parameter : layers[i]->parameters()) parameter->value.requires_grad_(false);
      }
      return layers;
    };
    const int layers = models::count_layers(model);
    Plan plan{.replicas = shape.replicas, .chunks = shape.chunks, .schedule = shape.schedule};
    plan.partition.layers_per_stage.assign(shape.stages, layers / shape.stages);
    plan.partition.layers_per_stage.back() += layers % shape.stages;
    return std::make_unique<Engine>(plan, EngineOptions{.compose = {.model_name = shape.model,
                                                                    .make_layers = make_layers,
                                                                    .optimizer = optimizer,
                                                                    .make_sync = factory},
                                                        .step = step,
                                                        .devices_of = [](const Plan& of) {
                                                          DeviceChoice choice;
                                                          for (int i = 0; i < of.replicas * of.devices(); ++i)
                                                            choice.devices.push_back({device::DeviceKind::kCpu, i});
                                                          return choice;
                                                        }});
  }
  static pipeline::MicroBatch batch_of(const Shape& shape, std::int64_t number) {
    return shape.model == std::string("gpt2") ? make_token_batch(13, number) : make_batch(13, number);
  }
  static StepStats train(Engine& engine, const Shape& shape, std::int64_t number) {
    return engine.step().run({batch_of(shape, number)}, number, kLr);
  }

  static void expect_same_bits(const storage::TensorMap& ours, const storage::TensorMap& theirs) {
    ASSERT_EQ(ours.size(), theirs.size());
    for (const auto& [name, tensor] : ours) EXPECT_TRUE(at::equal(tensor, theirs.at(name))) << name;
  }
  static void expect_same_state(const Engine& ours, const Engine& theirs) {
    const State own = ours.capture(), other = theirs.capture();
    EXPECT_EQ(own.optimizer_steps, other.optimizer_steps);
    expect_same_bits(own.model, other.model);
    expect_same_bits(own.optimizer, other.optimizer);
  }
  // Also of the copies of tied parameters, which no state has: the next loss would show them.
  static void expect_same_next_loss(Engine& ours, Engine& theirs, const Shape& shape) {
    EXPECT_EQ(ours.step().evaluate(batch_of(shape, 99)).counts.loss_sum,
              theirs.step().evaluate(batch_of(shape, 99)).counts.loss_sum);
  }
};

TEST_F(SyncTest, AnOptimizerElsewhereTrainsAsOneHere) {
  for (const Shape& shape : {Shape{"vit"}, Shape{"gpt2", 3, 2, "zb-h1", 3}}) {
    const auto ours = make_engine(shape, making<KeepsTheOptimizer>(), kAdam);
    const auto here = make_engine(shape, make_sync, kSgd);
    for (int number = 0; number < 4; ++number)
      EXPECT_NEAR(train(*ours, shape, number).loss, train(*here, shape, number).loss, kTolerance) << shape.model;
    const WorstError worst = worst_error(ours->capture().model, here->capture().model);
    EXPECT_LE(worst.error, kTolerance) << worst.name;
    EXPECT_EQ(ours->capture().optimizer_steps, 0) << "its own optimizer has run";
  }
}

TEST_F(SyncTest, WeightsThatAreReplacedBeforeAStepAreUsedInIt) {
  for (const Shape& shape : {Shape{"vit"}, Shape{"gpt2", 3, 1, "1f1b", 2}}) {
    const auto ours = make_engine(shape, making<ReplacesWeightsBeforeTheThirdStep>(), kAdam);
    const auto plain = make_engine(shape, make_sync, kAdam);
    State state = plain->capture();
    const storage::TensorMap initial = state.model;
    for (int number = 0; number < 4; ++number) {
      if (number == 2) {
        state = plain->capture();
        state.model = initial;
        plain->load(state, "here");
      }
      EXPECT_EQ(train(*ours, shape, number).loss, train(*plain, shape, number).loss) << shape.model << number;
    }
    expect_same_state(*ours, *plain);
  }
}

TEST_F(SyncTest, WeightsThatAreReplacedAfterAStepReachEveryCopy) {
  for (const Shape& shape : {Shape{"vit"}, Shape{"gpt2", 3, 1, "1f1b", 2}}) {
    const auto ours = make_engine(shape, making<ReplacesWeightsAfterTheThirdStep>(), kAdam);
    const auto untrained = make_engine(shape, make_sync, kAdam);
    for (int number = 0; number < 3; ++number) EXPECT_EQ(train(*ours, shape, number).skipped, number == 2);
    expect_same_bits(ours->capture().model, untrained->capture().model);
    EXPECT_EQ(ours->capture().optimizer_steps, 2);
    expect_same_next_loss(*ours, *untrained, shape);
  }
}

TEST_F(SyncTest, AStepThatIsSkippedLeavesNoTraceWhateverItsNumbers) {
  const Shape shape;
  const TrainStepOptions clipped{.seed = 7, .clip_norm = 0.5};
  const auto ours = make_engine(shape, making<SkipsOddSteps>(), kAdam, clipped);
  const auto plain = make_engine(shape, make_sync, kAdam, clipped);
  for (int number = 0; number < 6; ++number) {
    pipeline::MicroBatch batch = batch_of(shape, number);
    if (number == 3) batch.inputs.fill_(std::numeric_limits<double>::quiet_NaN());
    const StepStats stats = ours->step().run({batch}, number, kLr);
    EXPECT_EQ(stats.skipped, number % 2 == 1);
    if (number % 2 == 0) {
      EXPECT_EQ(stats.loss, train(*plain, shape, number).loss);
    }
  }
  expect_same_state(*ours, *plain);
}

// What the sync has admitted counts, and nothing else.
TEST_F(SyncTest, TheGradientIsThatOfTheMicroBatchesThatHaveRun) {
  for (const Shape& shape : {Shape{"resnet8", 2, 2, "1f1b", 3}, Shape{"vit", 3, 2, "zb-h1", 3},
                             Shape{"gpt2", 2, 2, "gpipe", 3}, Shape{"vit", 1, 3, "1f1b", 2}}) {
    SCOPED_TRACE(concat(shape.model, " ", shape.schedule));
    const auto engine = make_engine(shape, making<AdmitsFew>(), kSgd);
    ReferenceModel reference(small_model(shape.model));
    reference.load(engine->capture().model);
    const pipeline::MicroBatch batch = batch_of(shape, 5);
    std::vector<pipeline::MicroBatch> pieces;
    std::int64_t samples = 0, targets = 0, replica = 0;
    for (const pipeline::MicroBatch& share : pipeline::split(batch, shape.replicas)) {
      int number = 0;
      for (const pipeline::MicroBatch& piece : pipeline::split(share, shape.chunks)) {
        if (!AdmitsFew::takes(ReplicaId{static_cast<int>(replica)}, MicroBatchId{number++})) continue;
        pieces.push_back(piece);
        samples += piece.samples();
        targets += piece.targets.ge(0).sum().item<std::int64_t>();
      }
      ++replica;
    }
    const ReferenceStep expected = reference.step(pieces, {.training = true, .seed = 7, .step = 5});
    const auto found = engine->step().compute_gradients({batch}, 5, shape.chunks, {.count_correct = true});
    EXPECT_EQ(found.stats.samples, samples);
    EXPECT_EQ(found.stats.targets, targets);
    EXPECT_EQ(found.stats.correct->targets, targets);
    EXPECT_NEAR(found.stats.loss, expected.loss, kTolerance * expected.loss);
    storage::TensorMap gradients = gradient_tensors(engine->composition());
    for (auto& [name, gradient] : gradients) gradient = gradient / found.divisor;
    const WorstError worst = worst_error(gradients, expected.gradients);
    EXPECT_LE(worst.error, 1e-10) << worst.name;
  }
}

TEST_F(SyncTest, AStepOfNoMicroBatchChangesNothing) {
  const Shape shape{"resnet8", 2, 2, "1f1b", 2};
  const auto ours = make_engine(shape, making<AdmitsNone>(), kAdam), untrained = make_engine(shape, make_sync, kAdam);
  const StepStats stats = train(*ours, shape, 0);
  EXPECT_EQ(stats.samples, 0);
  EXPECT_TRUE(stats.skipped);
  expect_same_state(*ours, *untrained);
}

using Names = std::set<std::string>;

// The model's layers, of which the first ones are not trained.
struct PartlyFrozen {
  PartlyFrozen(const models::ModelOptions& model, int frozen_layers) : layers(models::make_model(model).layers) {
    for (int i = 0; i < static_cast<int>(layers.size()); ++i) {
      for (nn::Parameter* parameter : layers[i]->parameters()) {
        (i < frozen_layers ? frozen : trained).insert(parameter->name);
        if (i < frozen_layers) parameter->value.requires_grad_(false);
      }
    }
  }
  pipeline::LayerList layers;
  Names trained, frozen;
};

double norm_of(const storage::TensorMap& gradients) {
  double squares = 0;
  for (const auto& [name, gradient] : gradients) squares += gradient.square().sum().item<double>();
  return std::sqrt(squares);
}

class TrainableExtents : public SyncTest, public testing::WithParamInterface<std::tuple<int, Shape>> {};

TEST_P(TrainableExtents, LeaveOutWhatIsFrozen) {
  const auto& [frozen_layers, shape] = GetParam();
  Names synced, of_optimizer;
  const SyncFactory factory = [&synced](SyncRequest request) {
    for (const auto& stage : request.stages) {
      for (const comm::Extent& extent : stage.extents) synced.insert(extent.name);
    }
    return make_sync(std::move(request));
  };
  const TrainStepOptions clipped{.seed = 7, .clip_norm = 0.1};
  const auto engine = make_engine(shape, factory, kAdam, clipped, frozen_layers);
  PartlyFrozen expected(small_model(shape.model), frozen_layers);
  EXPECT_EQ(synced, expected.trained);
  for (const auto& [name, tensor] : engine->capture().optimizer) of_optimizer.insert(name.substr(name.find('/') + 1));
  EXPECT_EQ(of_optimizer, expected.trained);

  const storage::TensorMap before = engine->capture().model;
  ReferenceModel reference(std::move(expected.layers));
  reference.load(before);
  for (int number = 0; number < 2; ++number) {
    const auto pieces = pieces_of(batch_of(shape, number), shape.replicas, shape.chunks);
    const ReferenceStep step = reference.step(pieces, {.training = true, .seed = 7, .step = number});
    EXPECT_NEAR(*train(*engine, shape, number).gradient_norm, norm_of(step.gradients), 1e-10);
    reference.update(kAdam, kLr, clipped.clip_norm);
  }
  const storage::TensorMap after = engine->capture().model, theirs = reference.parameters();
  storage::TensorMap ours;
  for (const auto& [name, tensor] : theirs) ours[name] = after.at(name);
  const WorstError worst = worst_error(ours, theirs);
  EXPECT_LE(worst.error, 1e-8) << worst.name;
  for (const std::string& name : expected.frozen) EXPECT_TRUE(at::equal(after.at(name), before.at(name))) << name;
}

INSTANTIATE_TEST_SUITE_P(Layers, TrainableExtents,
                         testing::Combine(testing::Values(1, 2, 3),
                                          testing::Values(Shape{"vit", 2, 2, "1f1b", 2}, Shape{"vit", 3, 1, "zb-h1", 3},
                                                          Shape{"resnet8", 2, 2, "gpipe", 2})));

// What was trained before needs no optimizer state while it is frozen.
TEST_F(SyncTest, StateOfATrainedModelFitsOneThatIsPartlyFrozen) {
  const Shape shape;
  const auto trained = make_engine(shape, make_sync, kAdam), frozen = make_engine(shape, make_sync, kAdam, {}, 2);
  train(*trained, shape, 0);
  frozen->load(trained->capture(), "here");
  expect_same_bits(frozen->capture().model, trained->capture().model);
  for (const auto& [name, tensor] : frozen->capture().optimizer)
    EXPECT_TRUE(at::equal(tensor, trained->capture().optimizer.at(name))) << name;
}

}  // namespace
}  // namespace sluice::engine::test
