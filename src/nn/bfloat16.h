// bfloat16: helpers for layers that compute in bfloat16 with float32 parameters (LayerOptions::in_bf16). The type of
// the input decides. Products use a rounded copy of the weight. Autograd sees the float32 parameter, so gradients are
// added up in float32, and the optimizer needs no change.
// Norms, softmax, the loss and statistics are computed in float32 (layer_norm.h, batch_norm.h, attention.h, loss.h).
// The residual stream of transformers stays float32, also between stages: rounding it after every block made the
// gradient's error 1.1 to 1.5 times that of torch.autocast.
// This is the scheme of Micikevicius et al. 2018, "Mixed precision training", without loss scaling, which bfloat16's
// exponent range makes unnecessary (Kalamkar et al. 2019).
#pragma once

#include <ATen/ATen.h>

#include "nn/transformed_weights.h"

namespace sluice::nn {

[[nodiscard]] inline bool is_bf16(const at::Tensor& x) { return x.scalar_type() == at::kBFloat16; }

[[nodiscard]] inline at::Tensor in_float(const at::Tensor& x) { return is_bf16(x) ? x.to(at::kFloat) : x; }

// The weight in the type of x, for a product of both. A backward pass calls this again instead of saving the copy, so
// that all micro-batches share one. If `kept` is not null, copies are kept there. Does not support autograd.
[[nodiscard]] inline at::Tensor weight_for(const at::Tensor& x, const at::Tensor& weight, TransformedWeights* kept) {
  if (!is_bf16(x) || is_bf16(weight)) return weight;
  const auto make = [&] { return weight.detach().to(x.scalar_type()); };
  return kept != nullptr ? kept->get(weight, TransformedWeights::Use::kBfloat16, 0, make) : make();
}

}  // namespace sluice::nn
