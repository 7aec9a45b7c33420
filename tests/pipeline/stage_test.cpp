// A Stage by itself: what it keeps and what it gives away. What it computes is tested with the executor's tests.
#include "pipeline/stage.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "device/memory.h"
#include "nn/conv.h"
#include "nn/registry.h"

namespace sluice::pipeline {
namespace {

constexpr device::Device kDevice{device::DeviceKind::kCpu, 0};

class ConvLayer final : public nn::RegisteredLayer {
 public:
  ConvLayer(const std::string& name, std::int64_t in, std::int64_t out)
      : RegisteredLayer(name, {}),
        conv_(registry_, name, {.in = in, .out = out, .kernel = 3, .padding = 1}, nn::Conv2d::Bias::kNone) {}

  at::Tensor forward(const at::Tensor& x, const nn::ForwardContext& context) override {
    return at::tanh(conv_(x, context));
  }

 private:
  nn::Conv2d conv_;
};

// Two layers, whose input gradient is wanted and whose weight gradients are deferred.
struct SplitStage {
  explicit SplitStage(bool recomputes) : stage(StageId{1}, make_layers(), ParamId{0}, kDevice, nullptr, {recomputes}) {
    stage.begin_gradients();
  }
  static std::vector<std::unique_ptr<nn::Layer>> make_layers() {
    std::vector<std::unique_ptr<nn::Layer>> layers;
    layers.push_back(std::make_unique<ConvLayer>("first", 3, 4));
    layers.push_back(std::make_unique<ConvLayer>("second", 4, 5));
    return layers;
  }
  at::Tensor forward_and_backward() {
    const nn::Tensors outputs =
        stage.forward(MicroBatchId{0}, {input}, {.context = {.training = true}, .splits_backward = true});
    return stage.backward(MicroBatchId{0}, {at::ones_like(outputs[0])}, {})[0];
  }

  Stage stage;
  at::Tensor input = at::rand({2, 3, 8, 8}).contiguous(at::MemoryFormat::ChannelsLast);
};

// Symptom: under a memory limit a split backward takes a gradient more a layer than it should. Cause: weight gradients
// wait with the input of their layer, a leaf, and that kept its gradient.
TEST(Stage, KeepsNothingOfTheGradientThatItPassesOn) {
  for (const bool recomputes : {false, true}) {
    SplitStage split(recomputes);
    EXPECT_EQ(split.forward_and_backward().use_count(), 1U) << recomputes;
    EXPECT_EQ(split.stage.deferred(), 1);
    split.stage.weight_gradient(MicroBatchId{0}, {});
    EXPECT_GT(split.stage.parameters().gradients().abs().sum().item<float>(), 0.0F);
  }
}

TEST(Stage, KeepsAsMuchForWeightGradientsWhereItRecomputes) {
  device::count_memory();
  const auto kept = [](bool recomputes) {
    SplitStage split(recomputes);
    const device::MemoryScope charge(kDevice, device::MemoryKind::kActivations);
    const std::uint64_t before = device::memory_use(kDevice).current;
    static_cast<void>(split.forward_and_backward());
    return device::memory_use(kDevice).current - before;
  };
  EXPECT_GT(kept(false), 0U);
  EXPECT_EQ(kept(true), kept(false));
}

}  // namespace
}  // namespace sluice::pipeline
