// swiglu: the gated activation silu(gate) * up (Shazeer 2020), with silu(x) = x * sigmoid(x).
// On CPUs a fused kernel of this project runs in float32 and bfloat16. It keeps only its input: backward computes silu
// again. On GPUs and in float64 ATen runs. Double backward is not supported.
#pragma once

#include "nn/linear.h"

namespace sluice::nn {

// gated: [..., 2 width], gate and up side by side. Returns [..., width].
at::Tensor swiglu(const at::Tensor& gated);

// silu(gate(x)) * up(x); both layers as one product. x in the type of the activations.
at::Tensor linear_swiglu(const at::Tensor& x, const Linear& gate, const Linear& up, const ForwardContext& context);

}  // namespace sluice::nn
