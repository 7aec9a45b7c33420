// gelu: x Phi(x) with the exact error function (Hugging Face's "gelu"). On the CPU, float32 and bfloat16 use the
// kernels of kernels/; everything else uses ATen, which alone supports double backward.
#pragma once

#include <ATen/ATen.h>

#include "nn/cuda/gelu_math.h"
#include "nn/linear.h"

namespace sluice::nn {

using gpu::GeluForm;

at::Tensor gelu(const at::Tensor& x);

// GELU approximated by tanh: Hugging Face's "gelu_new", as in GPT-2. Always ATen's.
inline at::Tensor gelu_tanh(const at::Tensor& x) { return at::gelu(x, "tanh"); }

// gelu(linear(x)), or gelu_tanh. On GPUs in float32 and bfloat16 the activation kernels add the bias and its gradient.
at::Tensor linear_gelu(const at::Tensor& x, const Linear& linear, const ForwardContext& context,
                       GeluForm form = GeluForm::kExact);

}  // namespace sluice::nn
