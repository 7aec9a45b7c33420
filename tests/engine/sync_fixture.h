// sync_fixture: engines of small models with a sync of the test's, and what has to be equal of two of them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>

#include <ATen/ATen.h>

#include "engine/engine.h"
#include "engine/reference.h"
#include "engine/test_syncs.h"

namespace sluice::engine::test {

inline constexpr double kLr = 0.01;
inline constexpr double kTolerance = 1e-12;
inline const optim::OptimizerOptions kAdam{.kind = "adamw", .weight_decay = 0.01};
inline const optim::OptimizerOptions kSgd{.kind = "sgd"};

struct Shape {
  const char* model = "vit";
  int stages = 2;
  int replicas = 2;
  const char* schedule = "1f1b";
  int chunks = 2;
};

// The plan with a cut of the model into so many stages, the rest in the last one.
inline Plan with_stages(Plan plan, const char* model, int stages) {
  const int trained = models::count_layers(small_model(model)) - plan.frozen_layers;
  plan.partition.layers_per_stage.assign(stages, trained / stages);
  plan.partition.layers_per_stage.back() += trained % stages;
  return plan;
}

// Of the cases that a test goes through.
template <typename Case>
Plan plan_of(const Case& grid) {
  return with_stages({.replicas = grid.replicas,
                      .chunks = grid.chunks,
                      .schedule = grid.schedule,
                      .virtual_stages = grid.virtual_stages,
                      .frozen_layers = grid.frozen},
                     grid.model, grid.stages);
}

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
    const Plan plan = with_stages({.replicas = shape.replicas, .chunks = shape.chunks, .schedule = shape.schedule},
                                  shape.model, shape.stages);
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
    EXPECT_EQ(ours.step().evaluate(batch_of(shape, 99)).scores.loss_sum,
              theirs.step().evaluate(batch_of(shape, 99)).scores.loss_sum);
  }
};

}  // namespace sluice::engine::test
