// Borders of several tensors: one that carries on, a second one with a gradient that every layer uses and passes on,
// integers without a gradient, and an input that a batch lacks.
#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "pipeline/executor_cases.h"

namespace sluice::pipeline {
namespace {

using namespace executor_cases;  // NOLINT(google-build-using-namespace): written for these tests

constexpr int kMiddle = 6;

at::Tensor weight_of(int layer) {
  return (at::arange(kWidth * kWidth, at::kDouble) * (3 + layer)).sin().div(3).view({kWidth, kWidth});
}

class BorderLayer : public nn::Layer {
 public:
  explicit BorderLayer(int number) : Layer("layer" + std::to_string(number)) {
    weight_ = {.name = name() + ".weight", .value = weight_of(number).requires_grad_()};
  }
  std::vector<nn::Parameter*> parameters() override { return {&weight_}; }

 protected:
  [[nodiscard]] at::Tensor product(const at::Tensor& x) const { return at::matmul(x, weight_.value); }

 private:
  nn::Parameter weight_;
};

// {x, keep, undefined} -> {tanh(x W), x W, keep}
class Fork final : public BorderLayer {
 public:
  using BorderLayer::BorderLayer;
  Tensors forward_all(const Tensors& inputs, const nn::ForwardContext&) override {
    EXPECT_EQ(inputs.size(), 3U);
    EXPECT_FALSE(inputs[2].defined());
    const at::Tensor skip = product(inputs[0]);
    return {skip.tanh(), skip, inputs[1]};
  }
};

// {x, skip, keep} -> {tanh(x W + skip), skip, keep}
class Middle final : public BorderLayer {
 public:
  using BorderLayer::BorderLayer;
  Tensors forward_all(const Tensors& inputs, const nn::ForwardContext&) override {
    return {at::tanh(product(inputs[0]) + inputs[1]), inputs[1], inputs[2]};
  }
};

// {x, skip, keep} -> {(x W) keep + skip}
class Join final : public BorderLayer {
 public:
  using BorderLayer::BorderLayer;
  Tensors forward_all(const Tensors& inputs, const nn::ForwardContext&) override {
    return {product(inputs[0]) * inputs[2].unsqueeze(1) + inputs[1]};
  }
};

LayerList make_layers() {
  LayerList layers;
  layers.push_back(std::make_unique<Fork>(0));
  for (int i = 1; i <= kMiddle; ++i) layers.push_back(std::make_unique<Middle>(i));
  layers.push_back(std::make_unique<Join>(kMiddle + 1));
  return layers;
}

MicroBatch make_batch(std::int64_t samples) {
  const MicroBatch plain = test::make_toy_batch(samples, kWidth, 4);
  return {{plain.inputs[0], at::arange(samples) % 2, {}}, plain.targets, plain.sample_ids};
}

Partition partition_of(int stages) {
  Partition partition{std::vector<int>(stages, (kMiddle + 2) / stages)};
  partition.layers_per_stage.front() += (kMiddle + 2) % stages;
  return partition;
}

// One device, no micro-batches.
std::vector<at::Tensor> plain_gradients(const MicroBatch& batch) {
  const LayerList layers = make_layers();
  Tensors border = batch.inputs;
  for (const auto& layer : layers) border = layer->forward_all(border, {.training = true});
  torch::autograd::backward({test::toy_loss(border, batch.targets) / static_cast<double>(batch.samples())}, {});
  std::vector<at::Tensor> gradients;
  for (const auto& layer : layers) gradients.push_back(layer->parameters().front()->value.grad().flatten());
  return gradients;
}

class Borders : public ::testing::TestWithParam<Case> {};

TEST_P(Borders, GiveTheGradientsOfOneDevice) {
  const auto& [name, devices, replicas] = GetParam();
  constexpr int kChunks = 8;
  const Schedule schedule = schedule_of(name, devices, kChunks);
  if (schedule.stages > kMiddle + 2) GTEST_SKIP() << schedule.stages << " stages of " << kMiddle + 2 << " layers";
  for (const std::int64_t samples : {24, 19}) {
    const MicroBatch batch = make_batch(samples);
    const std::vector<at::Tensor> expected = plain_gradients(batch);
    for (const bool recompute : {false, true}) {
      Executor executor(test::make_toy_grid(make_layers, partition_of(schedule.stages), replicas, {recompute}),
                        test::cpu_grid(replicas, devices), stage_owners(schedule), {});
      for (int step = 0; step < 2; ++step) executor.run(training_pass(schedule, replicas, batch));
      std::size_t layer = 0;
      for (int s = 0; s < schedule.stages; ++s) {
        at::Tensor sum = at::zeros_like(executor.stage(ReplicaId{0}, StageId{s}).parameters().gradients());
        for (int r = 0; r < replicas; ++r) sum += executor.stage(ReplicaId{r}, StageId{s}).parameters().gradients();
        for (const ParameterEntry& entry : executor.stage(ReplicaId{0}, StageId{s}).parameters().entries()) {
          const at::Tensor own = sum.narrow(0, entry.begin, entry.numel);
          EXPECT_TRUE(at::allclose(own, expected[layer], 1e-12, 1e-12))
              << "layer " << layer << " recompute " << recompute << " samples " << samples;
          ++layer;
        }
      }
      EXPECT_EQ(layer, expected.size());
    }
  }
}

std::vector<Case> border_cases() {
  std::vector<Case> cases;
  for (const std::string& schedule : schedule_names()) {
    for (const int devices : {2, 4}) cases.push_back({schedule, devices, devices == 2 ? 2 : 1});
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Schedules, Borders, ::testing::ValuesIn(border_cases()), name_of_case);

// The frozen layers hand on an input of the model as it is, and say so.
TEST(FrozenPrefix, HandsOnABorderAndSaysWhichInputsItHolds) {
  LayerList layers = make_layers();
  const FrozenPrefix prefix(take_first(layers, 3), at::kCPU);
  const MicroBatch batch = make_batch(5);
  const FrozenPrefix::Features features = prefix.forward(batch.inputs, nullptr);
  ASSERT_EQ(features.tensors.size(), 3U);
  EXPECT_EQ(features.sources, (std::vector<int>{FrozenPrefix::kMade, FrozenPrefix::kMade, 1}));
  EXPECT_TRUE(features.tensors[2].is_same(batch.inputs[1]));
}

// Each share of a micro-batch runs on a device of its own; the first stage gets their rows in order.
TEST(Borders, OfFrozenLayersAreJoinedFromTheirShares) {
  const MicroBatch batch = make_batch(10);
  Tensors expected = batch.inputs;
  {
    const at::NoGradGuard no_grad;
    for (const auto& layer : make_layers()) expected = layer->forward_all(expected, {});
  }
  const auto rest = [] {
    LayerList layers = make_layers();
    static_cast<void>(take_first(layers, 3));
    return layers;
  };
  const std::vector<int> owners{0, 1};
  PrefixGrid prefixes;
  LayerList layers = make_layers();
  const auto prefix = std::make_shared<FrozenPrefix>(take_first(layers, 3), at::kCPU);
  for (int slot = 0; slot < 2; ++slot) prefixes.push_back(prefix);
  Executor executor(test::make_toy_grid(rest, {{3, 2}}, 1), test::cpu_grid(1, 2), owners, {}, prefixes);
  PassRequest request{.schedule = make_forward_only(owners, 3), .loss = test::toy_loss, .keep_logits = true};
  request.micro_batches = {split(batch, 3)};
  const PassResult result = executor.run(std::move(request));
  std::vector<at::Tensor> outputs;
  for (const MicroBatchResult& of_micro_batch : result.micro_batches[0]) outputs.push_back(of_micro_batch.logits);
  EXPECT_TRUE(at::allclose(at::cat(outputs), expected[0], 1e-12, 1e-12));
}

}  // namespace
}  // namespace sluice::pipeline
