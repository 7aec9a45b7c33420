// Frozen layers before the pipeline: training with them is training the other layers on what they make of the samples.
// In float64, beside one device that does just that.
#include "pipeline/frozen_prefix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <atomic>
#include <map>
#include <memory>
#include <set>

#include "comm/processes.h"
#include "comm/ranks.h"
#include "core/error.h"
#include "device/memory.h"
#include "engine/engine.h"
#include "engine/frozen_shapes.h"
#include "engine/kept_features.h"
#include "engine/reference.h"
#include "engine/same_state.h"
#include "support/toy_model.h"

namespace sluice::engine::test {
namespace {

using nn::BatchNormMode;
using pipeline::LayerList;
using pipeline::MicroBatch;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr double kTolerance = 1e-10, kLr = 0.01;
const optim::OptimizerOptions kMomentum{.kind = "momentum", .weight_decay = 0.1};

// One device: what the frozen layers make of samples, layer by layer, and the rest of the model, which is trained.
struct Reference {
  explicit Reference(const Shape& shape)
      : frozen(layers_of(shape)), trained(rest_of(shape)), batch_norm(shape.batch_norm) {
    frozen.resize(shape.frozen);
  }
  static LayerList rest_of(const Shape& shape) {
    LayerList layers = layers_of(shape);
    static_cast<void>(pipeline::take_first(layers, shape.frozen));
    return layers;
  }

  [[nodiscard]] MicroBatch features_of(MicroBatch batch) const {
    const at::NoGradGuard no_grad;
    for (const auto& layer : frozen) batch.inputs = layer->forward_all(batch.inputs, {});
    return batch;
  }
  ReferenceStep step(const Shape& shape, const MicroBatch& batch, std::int64_t number) {
    const MicroBatch features = features_of(batch);
    const auto pieces = batch_norm == BatchNormMode::kSync
                            ? joined_micro_batches(features, shape.replicas, shape.chunks)
                            : pieces_of(features, shape.replicas, shape.chunks);
    return trained.step(pieces, {.training = true, .numerics = {.batch_norm = batch_norm}, .seed = 7, .step = number});
  }
  [[nodiscard]] storage::TensorMap frozen_tensors() const {
    storage::TensorMap tensors;
    for (const auto& layer : frozen) {
      for (const nn::Parameter* parameter : layer->parameters()) tensors[parameter->name] = parameter->value.detach();
      for (const nn::Buffer* buffer : layer->buffers()) tensors[buffer->name] = buffer->value;
    }
    return tensors;
  }

  LayerList frozen;
  ReferenceModel trained;
  BatchNormMode batch_norm;
};

// Gradients of one step, divided.
storage::TensorMap gradients_of(Engine& engine, const MicroBatch& batch, std::int64_t number) {
  const auto found = engine.step().compute_gradients({batch}, number, engine.plan().chunks);
  storage::TensorMap gradients = gradient_tensors(engine.composition());
  for (auto& [name, gradient] : gradients) gradient = gradient / found.divisor;
  return gradients;
}

void expect_close(const storage::TensorMap& ours, const storage::TensorMap& theirs, double tolerance) {
  ASSERT_EQ(ours.size(), theirs.size());
  const WorstError worst = worst_error(ours, theirs);
  EXPECT_LE(worst.error, tolerance) << worst.name;
}

void expect_same_bits(const storage::TensorMap& ours, const storage::TensorMap& theirs) {
  ASSERT_EQ(ours.size(), theirs.size());
  for (const auto& [name, tensor] : ours) EXPECT_TRUE(at::equal(tensor, theirs.at(name))) << name;
}

void expect_same_bits(const State& ours, const State& theirs) {
  EXPECT_EQ(ours.optimizer_steps, theirs.optimizer_steps);
  EXPECT_EQ(ours.updates, theirs.updates);
  expect_same_bits(ours.model, theirs.model);
  expect_same_bits(ours.optimizer, theirs.optimizer);
}

class FrozenPrefixParity : public testing::TestWithParam<Shape> {};

void expect_unmoved(const Engine& engine, const storage::TensorMap& frozen) {
  const storage::TensorMap model = engine.capture().model;
  for (const auto& [name, tensor] : frozen) EXPECT_TRUE(at::equal(model.at(name), tensor)) << name << " has moved";
}

// 20 steps. kept: where what the layers make is kept, so that batches that come again have no inputs; may be null.
void expect_parity(const Shape& shape, const std::shared_ptr<KeptFeatures>& kept) {
  SCOPED_TRACE(shape.text());
  EngineOptions options = options_of(shape, nullptr, kMomentum);
  options.compose.features = kept;
  Engine engine(plan_of(shape), options);
  Reference reference(shape);
  for (std::int64_t number = 0; number < 20; ++number) {
    const int view = static_cast<int>(number % 7);
    MicroBatch batch = make_batch(13 + view % 3, view);
    batch.view = view;
    const ReferenceStep expected = reference.step(shape, batch, number);
    if (kept) batch = kept->without_known_inputs(batch);
    const auto found = engine.step().compute_gradients({batch}, number, shape.chunks);
    EXPECT_NEAR(found.stats.loss, expected.loss, kTolerance * expected.loss);
    storage::TensorMap gradients = gradient_tensors(engine.composition());
    for (auto& [name, gradient] : gradients) gradient = gradient / found.divisor;
    expect_close(gradients, expected.gradients, kTolerance);
    static_cast<void>(engine.step().apply(found, {batch}, number, kLr));
    reference.trained.update(kMomentum, kLr, 0.5);
  }
  const storage::TensorMap model = engine.capture().model;
  storage::TensorMap ours;
  for (const auto& [name, tensor] : reference.trained.parameters()) ours[name] = model.at(name);
  expect_close(ours, reference.trained.parameters(), kTolerance);
  expect_unmoved(engine, reference.frozen_tensors());
}

TEST_P(FrozenPrefixParity, TrainsTheOthersOnWhatItMakesOfTheSamples) { expect_parity(GetParam(), nullptr); }

TEST_P(FrozenPrefixParity, TrainsTheOthersOnWhatIsKept) {
  const auto kept = std::make_shared<KeptFeatures>();
  expect_parity(GetParam(), kept);
  EXPECT_EQ(kept->hits, 278 - 97) << "of the samples of 20 steps all but those of the first seven";
}

TEST_P(FrozenPrefixParity, IsNotMovedByWeightDecay) {
  const Shape shape = GetParam();
  Engine engine(plan_of(shape), options_of(shape));
  const storage::TensorMap before = engine.capture().model;
  for (std::int64_t number = 0; number < 50; ++number)
    static_cast<void>(engine.step().run({make_batch(13 + number % 3, number)}, number, kLr));
  expect_unmoved(engine, Reference(shape).frozen_tensors());
  const storage::TensorMap after = engine.capture().model;
  for (const auto& [name, tensor] : Reference(shape).trained.parameters())
    EXPECT_FALSE(at::equal(before.at(name), after.at(name))) << name << " is trained";
}

INSTANTIATE_TEST_SUITE_P(Shapes, FrozenPrefixParity,
                         testing::Values(Shape{"vit", 3, 1, 1, "1f1b", 1}, Shape{"vit", 3, 2, 2, "1f1b", 4},
                                         Shape{"vit", 5, 3, 2, "gpipe", 5}, Shape{"vit", 1, 4, 1, "zb-h1", 4},
                                         Shape{"vit", 9, 1, 3, "1f1b", 2},
                                         Shape{"resnet8", 2, 2, 2, "1f1b", 2, BatchNormMode::kMicro},
                                         Shape{"resnet8", 2, 3, 1, "1f1b", 3, BatchNormMode::kDeferred},
                                         Shape{"resnet8", 3, 2, 3, "zb-h1", 2, BatchNormMode::kSync},
                                         Shape{"resnet8", 4, 1, 2, "1f1b", 2, BatchNormMode::kDeferred}));

TEST(FrozenPrefix, FreezesAndThawsInARunningProcess) {
  for (const char* model : {"vit", "resnet8"}) {
    const Shape shapes[]{{model, 0, 2, 2}, {model, 2, 2, 1}, {model, 3, 1, 3}, {model, 1, 2, 2}, {model, 0, 3, 1}};
    Engine engine(plan_of(shapes[0]), options_of(shapes[0]));
    std::int64_t number = 0;
    for (const Shape& shape : shapes) {
      SCOPED_TRACE(shape.text());
      const State before = engine.capture();
      engine.apply(plan_of(shape));
      expect_same_bits(engine.capture(), before);
      Reference reference(shape);
      storage::TensorMap rest = before.model;
      for (const auto& [name, tensor] : reference.frozen_tensors()) {
        tensor.copy_(rest.at(name));
        rest.erase(name);
      }
      reference.trained.load(rest);
      const MicroBatch batch = make_batch(13, number);
      expect_close(gradients_of(engine, batch, number), reference.step(shape, batch, number).gradients, kTolerance);
      engine.load(before, "before");
      for (const std::int64_t end = number + 3; number < end; ++number)
        static_cast<void>(engine.step().run({make_batch(13, number)}, number, kLr));
      const State after = engine.capture();
      for (const auto& [name, tensor] : reference.frozen_tensors()) {
        EXPECT_TRUE(at::equal(after.model.at(name), before.model.at(name))) << name;
        for (const char* state : {"exp_avg/", "exp_avg_sq/"}) {
          if (!before.optimizer.contains(state + name)) continue;  // running statistics have none
          EXPECT_TRUE(at::equal(after.optimizer.at(state + name), before.optimizer.at(state + name))) << name;
        }
      }
    }
  }
}

// As PyTorch, which counts the updates of each parameter. Every plan is taken on in the running process, and left by a
// resume in a new engine.
TEST(FrozenPrefix, WhatThawsIsUpdatedByItsOwnNumberOfUpdates) {
  for (const char* model : {"vit", "resnet8"}) {
    const Shape shapes[]{{model, 2, 2, 2}, {model, 0, 2, 1}, {model, 3, 1, 3}, {model, 1, 2, 2}, {model, 0, 3, 1}};
    EngineOptions options = options_of(shapes[0]);
    options.step.clip_norm = 0;
    auto engine = std::make_unique<Engine>(plan_of(shapes[0]), options);
    const storage::TensorMap expected = engine->capture().model;
    std::map<std::string, storage::TensorMap> states;
    UpdateCounts updates;
    std::int64_t number = 0;
    for (const Shape& shape : shapes) {
      SCOPED_TRACE(shape.text());
      engine->apply(plan_of(shape));
      for (const std::int64_t end = number + 5; number < end; ++number) {
        const MicroBatch batch = make_batch(13, number);
        const auto found = engine->step().compute_gradients({batch}, number, engine->plan().chunks);
        for (const auto& [name, gradient] : gradient_tensors(engine->composition())) {
          engine::test::reference_update(kAdam, kLr, ++updates[name], expected.at(name), gradient / found.divisor,
                                         states[name]);
        }
        static_cast<void>(engine->step().apply(found, {batch}, number, kLr));
      }
      const State saved = engine->capture();
      auto resumed = std::make_unique<Engine>(plan_of(shape), options);
      resumed->load(saved, "a checkpoint");
      expect_same_bits(resumed->capture(), saved);
      engine = std::move(resumed);
    }
    const State end = engine->capture();
    storage::TensorMap parameters, references;
    for (const auto& [name, count] : updates) {
      parameters[name] = end.model.at(name);
      references[name] = expected.at(name);
    }
    expect_close(parameters, references, kTolerance);
    EXPECT_EQ(end.updates, updates);
    EXPECT_EQ(end.optimizer_steps, 25);
  }
}

TEST(FrozenPrefix, IsInNoBucketAndNoGradient) {
  const Shape shape{"vit", 4, 2, 2};
  std::set<std::string> synced, of_reference;
  EngineOptions options = options_of(shape);
  options.compose.make_sync = [&synced](SyncRequest request) {
    for (const auto& stage : request.stages)
      for (const comm::Extent& extent : stage.extents) synced.insert(extent.name);
    return make_sync(std::move(request));
  };
  Engine engine(plan_of(shape), options);
  std::uint64_t bytes = 0;
  for (const auto& [name, tensor] : Reference(shape).trained.parameters()) {
    of_reference.insert(name);
    bytes += (tensor.nbytes() + 63) / 64 * 64;  // in whole cache lines
  }
  EXPECT_EQ(synced, of_reference);
  EXPECT_EQ(engine.composition().gradient_bytes(), bytes);
  EXPECT_EQ(engine.composition().parameter_count(),
            Engine(plan_of({"vit", 0}), options_of(shape)).composition().parameter_count());
}

TEST(FrozenPrefix, GivesTheEvaluationThatTheWholeModelGives) {
  const Shape whole{"resnet8", 0, 2, 1}, frozen{"resnet8", 3, 2, 2};
  Engine one(plan_of(whole), options_of(whole)), other(plan_of(frozen), options_of(frozen));
  static_cast<void>(one.step().run({make_batch(13)}, 0, kLr));
  other.load(one.capture(), "the whole model");
  at::Tensor ours, theirs;
  const MicroBatch batch = make_batch(23, 5);
  static_cast<void>(other.step().evaluate(batch, false, &ours));
  static_cast<void>(one.step().evaluate(batch, false, &theirs));
  EXPECT_LE((ours - theirs).abs().max().item<double>(), 1e-12);
}

TEST(FrozenPrefix, LeavesALayerToTrainAndNoTiedParameterApart) {
  Engine engine(plan_of({"vit", 0, 2}), options_of({"vit", 0, 2}));
  Plan all = plan_of({"vit", 9, 1});
  all.frozen_layers = 10;
  EXPECT_THAT([&] { engine.apply(all); }, ThrowsMessage<PlanRefused>(HasSubstr("leave none of the 10 layers of vit")));
  Plan uncovered = plan_of({"vit", 3, 2});
  uncovered.frozen_layers = 4;
  EXPECT_THROW(engine.apply(uncovered), PlanRefused);
  const Shape tied{"gpt2", 2, 2};
  EXPECT_THAT([&] { Engine(plan_of(tied), options_of(tied)); },
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("wte"), HasSubstr("ties its head to its embeddings"))));
}

class FrozenPrefixMemory : public testing::Test {
 protected:
  static void SetUpTestSuite() { device::count_memory(); }
};

// What is frozen needs its parameters alone; what thaws, gradients and optimizer state, too.
TEST_F(FrozenPrefixMemory, IsCountedInALimitAsThePlanHasItNotAsItIsNow) {
  const Shape shape{"vit", 5, 1};
  std::uint64_t all = 0, trained = 0;
  Reference reference(shape);
  for (const auto& [name, tensor] : reference.frozen_tensors()) all += tensor.nbytes();
  for (const auto& [name, tensor] : reference.trained.parameters()) trained += tensor.nbytes();
  all += trained;
  EngineOptions options = options_of(shape);
  options.compose.memory_limit = (all + 3 * trained + 4 * all) / 2;
  Engine engine(plan_of(shape), options);
  EXPECT_NO_THROW(engine.check_feasible(plan_of(shape)));
  EXPECT_NO_THROW(engine.check_feasible(plan_of({"vit", 7, 1})));
  EXPECT_THAT(
      [&] {
        engine.check_feasible(plan_of({"vit", 0, 1}));
      },
      ThrowsMessage<OutOfMemoryError>(HasSubstr("over its device.memory_limit")));
}

TEST(FrozenPrefix, NeedsToTheByteWhatItsParametersAre) {
  const Shape shape{"vit", 5, 2, 2};
  const LayerList layers = layers_of(shape);
  std::vector<nn::Layer*> all;
  std::uint64_t frozen = 0, first_stage = 0;  // bytes of parameters
  for (std::size_t i = 0; i < layers.size(); ++i) {
    all.push_back(layers[i].get());
    for (const nn::Parameter* parameter : layers[i]->parameters()) {
      if (i < 5) frozen += parameter->value.nbytes();
      if (i >= 5 && i < 7) first_stage += parameter->value.nbytes();
    }
  }
  // Device 0: the only copy of what is frozen, and stage 0 of replica 0 with gradients and two states of AdamW.
  ComposeOptions options = options_of(shape).compose;
  for (int i = 0; i < 4; ++i) options.devices.push_back({device::DeviceKind::kCpu, i});
  options.memory_limit = frozen + 4 * first_stage;
  EXPECT_NO_THROW(check_fits(plan_of(shape), options, all));
  --options.memory_limit;
  EXPECT_THAT([&] { check_fits(plan_of(shape), options, all); },
              ThrowsMessage<OutOfMemoryError>(HasSubstr("replica 0 stage 0: out of memory on cpu:0")));
}

TEST(FrozenPrefix, ThatFailsSaysSoAndStopsEveryDevice) {
  const auto fails = std::make_shared<std::atomic<int>>(0);
  const Shape shape{"vit", 4, 2, 2};  // of 11 layers with the probe
  EngineOptions options = options_of(shape);
  options.compose.make_layers = [fails, shape] {
    LayerList layers = layers_of(shape);
    layers.insert(layers.begin() + 1,
                  std::make_unique<sluice::test::ProbeLayer>("probe", [fails](const nn::ForwardContext& context) {
                    EXPECT_FALSE(context.training);
                    if (--*fails == 0) throw DataError("planted failure");
                  }));
    return layers;
  };
  Plan plan = plan_of(shape);
  ++plan.partition.layers_per_stage.back();
  Engine engine(plan, options);
  const MicroBatch batch = make_batch(13);
  const storage::TensorMap expected = gradients_of(engine, batch, 0);
  for (int at = 1; at <= 4; ++at) {
    *fails = at;
    EXPECT_THAT([&] { (void)engine.step().compute_gradients({batch}, 0, 2); },
                ThrowsMessage<Error>(AllOf(HasSubstr("in the frozen layers"), HasSubstr("planted failure"))));
    *fails = 0;
    expect_same_bits(gradients_of(engine, batch, 0), expected);
  }
}

// Rank 0's layers and kept optimizer state reach the other process, and both train as one device on all samples.
TEST(FrozenPrefix, IsTheSameInAllProcesses) {
  const Shape shape{"vit", 4, 2, 1};
  const int port = comm::test::free_port();
  const auto failures = comm::test::run_ranks(2, [&](int rank) {
    comm::Processes processes(comm::test::world_of(rank, 2, port), {},
                              {std::chrono::minutes(1), std::chrono::minutes(1)});
    Engine engine(plan_of(shape), options_of(shape, std::make_shared<Communicators>(processes)));
    Engine alone(plan_of({"vit", 0, 1}), options_of({"vit", 0, 1}));
    if (rank == 0) {
      static_cast<void>(alone.step().run({make_batch(16, 1)}, 0, kLr));  // moves weights and optimizer state
      engine.load(alone.capture(), "rank 0");
    }
    hand_out_state(engine.composition());
    alone.load(engine.capture(), "rank 0");
    alone.apply(plan_of({"vit", 4, 1, 1, "1f1b", 1}));
    for (std::int64_t number = 1; number < 4; ++number) {
      const MicroBatch batch = make_batch(16, number);
      const auto shares = pipeline::split(batch, 2);
      static_cast<void>(engine.step().run({shares[rank], 16, number}, number, kLr));
      static_cast<void>(alone.step().run({batch}, number, kLr));
    }
    check_same_state(engine.composition(), "at the end");
    expect_close(engine.capture().model, alone.capture().model, 1e-9);
    expect_close(engine.capture().optimizer, alone.capture().optimizer, 1e-8);
    EXPECT_EQ(engine.capture().updates, alone.capture().updates);
  });
  for (const std::string& failure : failures) EXPECT_EQ(failure, "");
}

}  // namespace
}  // namespace sluice::engine::test
