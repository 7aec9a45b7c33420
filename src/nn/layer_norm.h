// layer_norm: the module that owns weight and bias; the computation is ATen's (an own kernel saved 0.2 % of a ViT step,
// docs/performance.md), in float32 also where the layer computes in bfloat16, which its answer is rounded to.
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
    // ATen's kernels take bfloat16 too, but on the CPU that adds weight gradients up in it, and on GPUs wants one type.
    return at::layer_norm(in_float(x), {x.size(-1)}, weight_->value, bias_->value, epsilon_).to(activations_);
  }

 private:
  Parameter* weight_;
  Parameter* bias_;
  double epsilon_;
  at::ScalarType activations_;
};

}  // namespace sluice::nn
