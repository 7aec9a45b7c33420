// bfloat16: what layers need to compute in bfloat16 while their parameters stay float32 (LayerOptions::in_bf16): the
// type of the input decides. Products take a rounded copy of the weight; autograd sees the float32 parameter, so
// gradients are added up in float32 and the optimizer knows nothing of it. Norms, softmax, the loss and statistics are
// computed in float32 (layer_norm.h, batch_norm.h, attention.h, loss.h). What transformers add their blocks to stays
// float32, also between stages: rounded after every block, it made the gradient's error 1.1 to 1.5 times that of
// torch.autocast. The scheme is that of Micikevicius et al. 2018, "Mixed precision training", without loss scaling,
// which the exponents of bfloat16 make needless (Kalamkar et al. 2019). Not here: whether a CPU has instructions for it
// (kernels/kernels.h).
#pragma once

#include <ATen/ATen.h>

#include "nn/transformed_weights.h"

namespace sluice::nn {

[[nodiscard]] inline bool is_bf16(const at::Tensor& x) { return x.scalar_type() == at::kBFloat16; }

// float32 for bfloat16, else x. Autograd follows.
[[nodiscard]] inline at::Tensor in_float(const at::Tensor& x) { return is_bf16(x) ? x.to(at::kFloat) : x; }

// The weight in bfloat16 where x is, for a product of both. A backward pass asks again rather than save it: what is
// kept is kept once for all micro-batches. Copies are kept in `kept` where it is not null. No autograd.
[[nodiscard]] inline at::Tensor weight_for(const at::Tensor& x, const at::Tensor& weight, TransformedWeights* kept) {
  if (!is_bf16(x) || is_bf16(weight)) return weight;
  const auto make = [&] { return weight.detach().to(x.scalar_type()); };
  return kept != nullptr ? kept->get(weight, TransformedWeights::Use::kBfloat16, 0, make) : make();
}

}  // namespace sluice::nn
