// rms_norm: root-mean-square normalisation (Zhang and Sennrich 2019) and the module that owns its weight.
//   y = weight * round(x / sqrt(mean(x^2) + epsilon)), over the last dimension
// It computes in float32 (float64 for float64) and rounds to `type` before and after the weight, as in Hugging Face's
// LlamaRMSNorm. On CPUs a kernel of this project runs in float32 and bfloat16. On GPUs and in float64 ATen runs.
// Double backward is not supported.
#pragma once

#include "nn/registry.h"

namespace sluice::nn {

// x: [..., width] float32, bfloat16 or float64; weight: [width] float32 or float64. Returns [..., width] of `type`.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon, at::ScalarType type);

class RmsNorm {
 public:
  RmsNorm(Registry& registry, const std::string& name, std::int64_t width, double epsilon)
      : weight_(&registry.add_parameter(name + ".weight", {width}, Init::constant(1), ParameterRole::kNorm)),
        epsilon_(epsilon),
        activations_(registry.activations()) {}

  [[nodiscard]] at::Tensor operator()(const at::Tensor& x) const {
    return rms_norm(x, weight_->value, epsilon_, activations_);
  }

 private:
  Parameter* weight_;
  double epsilon_;
  at::ScalarType activations_;
};

}  // namespace sluice::nn
