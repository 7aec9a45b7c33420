// layer_norm and gelu: pointwise and row-wise parts of a transformer. Float32 on the CPU uses the kernels of kernels/,
// everything else ATen's operations and autograd. Double backward is supported only on ATen's path.
#pragma once

#include "nn/registry.h"

namespace sluice::nn {

// Over the last dimension; weight, bias [width].
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double epsilon);

// x Phi(x) with the exact error function (Hugging Face's "gelu").
at::Tensor gelu(const at::Tensor& x);

class LayerNorm {
 public:
  // Registers `name`.weight (ones) and `name`.bias (zeros).
  LayerNorm(Registry& registry, const std::string& name, std::int64_t width, double epsilon)
      : weight_(&registry.add_parameter(name + ".weight", {width}, Init::constant(1))),
        bias_(&registry.add_parameter(name + ".bias", {width}, Init::constant(0))),
        epsilon_(epsilon) {}

  [[nodiscard]] at::Tensor operator()(const at::Tensor& x) const {
    return layer_norm(x, weight_->value, bias_->value, epsilon_);
  }

 private:
  Parameter* weight_;
  Parameter* bias_;
  double epsilon_;
};

}  // namespace sluice::nn
