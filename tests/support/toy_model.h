// toy_model: small layers in float64 for tests of the pipeline, and the plain single-device step they are compared
// with.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "nn/layer.h"
#include "pipeline/executor.h"
#include "pipeline/split.h"

namespace sluice::test {

// tanh(x W + b), square.
class TanhLayer final : public nn::Layer {
 public:
  TanhLayer(const std::string& name, int width, std::uint64_t seed);
  at::Tensor forward(const at::Tensor& input, const nn::ForwardContext& context) override;
  std::vector<nn::Parameter*> parameters() override { return {&weight_, &bias_}; }

 private:
  nn::Parameter weight_;
  nn::Parameter bias_;
};

// Calls `action` in each forward, then passes its input on.
class ProbeLayer final : public nn::Layer {
 public:
  ProbeLayer(std::string name, std::function<void(const nn::ForwardContext&)> action)
      : Layer(std::move(name)), action_(std::move(action)) {}
  at::Tensor forward(const at::Tensor& input, const nn::ForwardContext& context) override {
    action_(context);
    return input * 1.0;
  }

 private:
  std::function<void(const nn::ForwardContext&)> action_;
};

[[nodiscard]] pipeline::LayerList make_toy_layers(int layers, int width, std::uint64_t seed);

// Sum over samples of squared distance to the one-hot-like target id (any smooth function will do).
[[nodiscard]] at::Tensor toy_loss(const nn::Tensors& outputs, const nn::Tensors& targets);

[[nodiscard]] pipeline::MicroBatch make_toy_batch(std::int64_t samples, int width, std::uint64_t seed);

// [replica][stage] CPU devices.
[[nodiscard]] std::vector<std::vector<device::Device>> cpu_grid(int replicas, int stages);

// Owners of one stage a device.
[[nodiscard]] std::vector<int> one_stage_each(int stages);

// Stages of `layers_of()` called once per replica; replicas share parameter values.
[[nodiscard]] pipeline::StageGrid make_toy_grid(const std::function<pipeline::LayerList()>& layers_of,
                                                const Partition& partition, int replicas,
                                                pipeline::Stage::Options options = {});

}  // namespace sluice::test
