// layer_norm: the module that owns weight and bias; the computation is ATen's (an own kernel saved 0.2 % of a ViT step,
// docs/performance.md), in float32 also where the layer computes in bfloat16, which
// its answer is rounded to.
#pragma once

#include "nn/bfloat16.h"
#include "nn/registry.h"

namespace sluice::nn {

class LayerNorm {
 public:
  // Registers `name`.weight (ones) and `name`.bias (zeros).
  LayerNorm(Registry& registry, const std::string& name, std::int64_t width, double epsilon)
      : weight_(&registry.add_parameter(name + ".weight", {width}, Init::constant(1), ParameterRole::kNorm)),
        bias_(&registry.add_parameter(name + ".bias", {width}, Init::constant(0), ParameterRole::kNorm)),
        epsilon_(epsilon),
        activations_(registry.activations()) {}

  [[nodiscard]] at::Tensor operator()(const at::Tensor& x) const {
    // ATen's kernel for GPUs takes one type only.
    const at::Tensor in = x.is_cpu() ? x : in_float(x);
    return at::layer_norm(in, {x.size(-1)}, weight_->value, bias_->value, epsilon_).to(activations_);
  }

 private:
  Parameter* weight_;
  Parameter* bias_;
  double epsilon_;
  at::ScalarType activations_;
};

}  // namespace sluice::nn
