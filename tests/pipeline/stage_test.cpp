// A Stage by itself: what it keeps and what it gives away. What it computes is tested with the executor's tests.
#include "pipeline/stage.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "nn/conv.h"
#include "nn/registry.h"

namespace sluice::pipeline {
namespace {

class ConvLayer final : public nn::RegisteredLayer {
 public:
  ConvLayer(const std::string& name, std::int64_t in, std::int64_t out)
      : RegisteredLayer(name, {}),
        conv_(registry_, name, {.in = in, .out = out, .kernel = 3, .padding = 1}, nn::Conv2d::Bias::kNone) {}

  at::Tensor forward(const at::Tensor& x, const nn::ForwardContext& context) override { return conv_(x, context); }

 private:
  nn::Conv2d conv_;
};

// Symptom: under a memory limit a split backward takes a gradient more a layer than it should. Cause: weight gradients
// wait with the input of their layer, a leaf, and that kept its gradient.
TEST(Stage, KeepsNothingOfTheGradientThatItPassesOn) {
  for (const bool recompute : {false, true}) {
    std::vector<std::unique_ptr<nn::Layer>> layers;
    layers.push_back(std::make_unique<ConvLayer>("first", 3, 4));
    layers.push_back(std::make_unique<ConvLayer>("second", 4, 5));
    Stage stage(StageId{1}, std::move(layers), ParamId{0}, {device::DeviceKind::kCpu, 0}, nullptr,
                {.recompute = recompute});
    stage.zero_gradients();
    const at::Tensor input = at::rand({2, 3, 8, 8}).contiguous(at::MemoryFormat::ChannelsLast);
    const StagePass pass{.context = {.training = true}, .splits_backward = true};
    const at::Tensor output = stage.forward(MicroBatchId{0}, input, pass);
    const at::Tensor gradient = stage.backward(MicroBatchId{0}, at::ones_like(output), {});
    EXPECT_EQ(gradient.use_count(), 1U) << recompute;
    EXPECT_EQ(stage.put_off(), 1);
    stage.weight_gradient(MicroBatchId{0});
    EXPECT_GT(stage.parameters().gradients().abs().sum().item<float>(), 0.0F);
  }
}

}  // namespace
}  // namespace sluice::pipeline
