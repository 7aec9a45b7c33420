// layer_norm: layer normalisation in float32 or float64, and the module that owns weight and bias.
// On CPUs and in float64 ATen runs. On GPUs in float32 and bfloat16 a kernel of this project reads one type and writes
// the other; ATen would keep a float32 copy for backward.
#pragma once

#include "nn/registry.h"

namespace sluice::nn {

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double epsilon,
                      at::ScalarType type);

class LayerNorm {
 public:
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
