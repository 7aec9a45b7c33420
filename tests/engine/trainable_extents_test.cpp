// Parameters that are not trained are in no bucket, in no optimizer and in no norm, and do not change. In float64.
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <tuple>

#include <ATen/ATen.h>

#include "core/error.h"
#include "engine/engine.h"
#include "engine/reference.h"
#include "engine/sync_fixture.h"

namespace sluice::engine::test {
namespace {

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
                                          testing::Values(Shape{"vit", 2, 2, "1f1b", 2}, Shape{"vit", 3, 2, "zb-h1", 3},
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
