// Adapters on frozen weights: every cut, schedule and number of replicas gives the gradient of one device, and only the
// adapters and the head have one. In float64.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include <ATen/core/grad_mode.h>

#include "core/concat.h"
#include "engine/engine.h"
#include "engine/step_equals.h"
#include "models/lora.h"

namespace sluice::engine::test {
namespace {

models::ModelOptions lora_model(const std::string& name, std::vector<std::string> targets = {}) {
  models::ModelOptions model = small_model(name, /*dropout=*/0.1);
  if (name == "bert") model.task = "mlm";
  model.lora_rank = 3;
  model.lora_dropout = 0.2;
  model.lora_targets = std::move(targets);
  return model;
}

// The factor b begins as 0, which would leave a without a gradient.
storage::TensorMap with_effect(storage::TensorMap tensors) {
  for (auto& [name, tensor] : tensors) {
    if (name.ends_with(".lora_B.weight"))
      tensor = at::sin(at::arange(tensor.numel(), at::kDouble) * 1.3).mul_(0.2).view(tensor.sizes());
  }
  return tensors;
}

std::set<std::string> names_of(const storage::TensorMap& tensors) {
  std::set<std::string> names;
  for (const auto& [name, tensor] : tensors) names.insert(name.substr(name.find('/') + 1));
  return names;
}

std::set<std::string> trained_names(const models::ModelOptions& options) {
  std::set<std::string> names;
  for (const auto& layer : models::make_model(options).layers) {
    for (const nn::Parameter* parameter : layer->parameters())
      if (parameter->value.requires_grad()) names.insert(parameter->name);
  }
  return names;
}

class ParityOfLora : public testing::TestWithParam<const char*> {};

TEST_P(ParityOfLora, EveryGridGivesTheGradientOfOneDevice) {
  const models::ModelOptions model = lora_model(GetParam());
  ReferenceModel one_device(model);
  const storage::TensorMap weights = with_effect(one_device.tensors());
  one_device.load(weights);
  const pipeline::MicroBatch batch = make_token_batch(7);
  const ReferenceStep reference = one_device.step({batch}, training_context());
  for (const std::string schedule : {"1f1b", "zb-h1"}) {
    for (const int devices : {1, 2, 3, 5}) {  // with 5, a stage of some models has no adapter
      for (const bool recompute : {false, true}) {
        Plan plan{.replicas = 1 + devices % 2, .schedule = schedule};
        plan.recompute.assign(devices, recompute);
        SCOPED_TRACE(concat(schedule, ", ", devices, " devices, recompute ", recompute));
        Composition grid = make_grid(model, plan, devices);
        load_model(grid, weights, "here");
        EXPECT_EQ(names_of(gradient_tensors(grid)), trained_names(model));
        for (const int chunks : {3, 6}) expect_step_equals(grid, batch, chunks, reference);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ParityOfLora, testing::Values("bert", "llama", "gpt2"));

// Of a model with 2 blocks in a stage a layer: embeddings, attention, MLP, attention, MLP, head.
TEST(Lora, AStageWithoutAnAdapterPassesTheGradientOn) {
  const models::ModelOptions model = lora_model("bert", {"query"});
  ASSERT_EQ(models::count_layers(model), 6);
  ReferenceModel one_device(model);
  const storage::TensorMap weights = with_effect(one_device.tensors());
  one_device.load(weights);
  const pipeline::MicroBatch batch = make_token_batch(6);
  const ReferenceStep reference = one_device.step({batch}, training_context());
  for (const std::string schedule : {"gpipe", "zb-h1"}) {
    Composition grid = make_grid(model, schedule, /*stages=*/6, /*replicas=*/2);
    load_model(grid, weights, "here");
    EXPECT_FALSE(grid.executor->stage(ReplicaId{0}, StageId{0}).is_trained());
    EXPECT_FALSE(grid.executor->stage(ReplicaId{0}, StageId{2}).is_trained());
    expect_step_equals(grid, batch, /*chunks=*/6, reference);
  }
}

TEST(Lora, UpdatesItsParametersAloneAndFollowsTheReference) {
  const models::ModelOptions model = lora_model("gpt2");
  const optim::OptimizerOptions adamw{.kind = "adamw", .weight_decay = 0.1};
  ReferenceModel one_device(model);
  const storage::TensorMap weights = with_effect(one_device.tensors());
  one_device.load(weights);
  Composition grid = make_grid(model, "1f1b", /*stages=*/3, /*replicas=*/2, adamw);
  load_model(grid, weights, "here");
  const std::set<std::string> trained = trained_names(model);
  EXPECT_EQ(names_of(optimizer_tensors(grid)), trained);
  TrainStep step(grid, {.seed = kSeed});
  for (std::int64_t number = 0; number < 4; ++number) {
    const pipeline::MicroBatch batch = make_token_batch(7, number);
    nn::ForwardContext context = training_context();
    context.step = number;
    one_device.train(batch, context, adamw, 0.01);
    static_cast<void>(step.run(batch, number, 0.01));
  }
  const storage::TensorMap after = parameter_tensors(grid);
  const auto [error, name] = worst_error(after, one_device.parameters());
  EXPECT_LE(error, 1e-9) << name;
  for (const auto& [tensor, value] : weights)
    EXPECT_EQ(at::equal(value, after.at(tensor)), !trained.contains(tensor)) << tensor;
  EXPECT_LT(grid.trained_count(), grid.parameter_count() / 4);
}

}  // namespace
}  // namespace sluice::engine::test
