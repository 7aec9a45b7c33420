// gelu: x Phi(x) with the exact error function (Hugging Face's "gelu"). float32 and bfloat16 on the CPU use the kernels
// of kernels/ (one exponential serves the distribution and its density), everything else ATen. Double backward is
// supported only on ATen's path. Behind a linear map: linear_gelu(), which on GPUs is one kernel with the bias.
#pragma once

#include <ATen/ATen.h>

#include "nn/cuda/gelu_math.h"
#include "nn/linear.h"

namespace sluice::nn {

using gpu::GeluForm;

at::Tensor gelu(const at::Tensor& x);

// The approximation by tanh, Hugging Face's "gelu_new" and GPT-2's; ATen's everywhere.
inline at::Tensor gelu_tanh(const at::Tensor& x) { return at::gelu(x, "tanh"); }

// gelu(linear(x)), or gelu_tanh. On a GPU in float32 and bfloat16 the kernel of the activation adds the bias, and its
// backward sums the bias's gradient on the way, which would else read the gradient of the product once more.
at::Tensor linear_gelu(const at::Tensor& x, const Linear& linear, const ForwardContext& context,
                       GeluForm form = GeluForm::kExact);

}  // namespace sluice::nn
