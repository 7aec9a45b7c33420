// layer_norm: the module that owns weight and bias, and the computation: in float32 also where the layer computes in
// bfloat16, which its answer is rounded to. On CPUs and in float64 ATen's (an own kernel saved 0.2 % of a ViT step on
// CPUs, docs/performance.md). On GPUs in float32 and bfloat16 our own, which reads one type and writes the other, where
// ATen needs a copy in float32 on either side and keeps it for backward.
#pragma once

#include "nn/registry.h"

namespace sluice::nn {

// Over the last dimension of x; the answer is rounded to `type`.
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double epsilon,
                      at::ScalarType type);

class LayerNorm {
 public:
  // Registers `name`.weight (ones) and `name`.bias (zeros).
  LayerNorm(Registry& registry, const std::string& name, std::int64_t width, double epsilon)
      : weight_(&registry.add_parameter(name + ".weight", {width}, Init::constant(1), ParameterRole::kNorm)),
        bias_(&registry.add_parameter(name + ".bias", {width}, Init::constant(0), ParameterRole::kNorm)),
        epsilon_(epsilon),
        activations_(registry.activations()) {}

  [[nodiscard]] at::Tensor operator()(const at::Tensor& x) const {
    return layer_norm(x, weight_->value, bias_->value, epsilon_, activations_);
  }

 private:
  Parameter* weight_;
  Parameter* bias_;
  double epsilon_;
  at::ScalarType activations_;
};

}  // namespace sluice::nn
