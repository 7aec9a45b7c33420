// bfloat16: helpers for layers that compute in bfloat16 with float32 parameters and gradients (LayerOptions::in_bf16).
// The input's type decides. Products use a rounded copy of the weight. Norms, softmax, the loss, statistics and the
// residual stream of transformers stay float32: rounding the stream after every block made the gradient's error 1.1 to
// 1.5 times that of torch.autocast.
// Micikevicius et al. 2018, "Mixed precision training", without loss scaling: bfloat16 has float32's exponent range.
#pragma once

#include <ATen/ATen.h>

#include "nn/transformed_weights.h"

namespace sluice::nn {

[[nodiscard]] inline bool is_bf16(const at::Tensor& x) { return x.scalar_type() == at::kBFloat16; }

[[nodiscard]] inline at::Tensor in_float(const at::Tensor& x) { return is_bf16(x) ? x.to(at::kFloat) : x; }

// The weight in the type of x. Backward calls this again instead of saving the copy, so that all micro-batches share
// one. Copies are kept in `kept` unless it is null. Does not support autograd.
[[nodiscard]] inline at::Tensor weight_for(const at::Tensor& x, const at::Tensor& weight, TransformedWeights* kept) {
  if (!is_bf16(x) || is_bf16(weight)) return weight;
  const auto make = [&] { return weight.detach().to(x.scalar_type()); };
  return kept != nullptr ? kept->get(weight, TransformedWeights::Use::kBfloat16, 0, make) : make();
}

}  // namespace sluice::nn
