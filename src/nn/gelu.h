// gelu: x Phi(x) with the exact error function (Hugging Face's "gelu"). float32 and bfloat16 on the CPU use the kernels
// of kernels/ (one exponential serves the distribution and its density), everything else ATen. Double backward is
// supported only on ATen's path.
#pragma once

#include <ATen/ATen.h>

namespace sluice::nn {

at::Tensor gelu(const at::Tensor& x);

// The approximation by tanh, Hugging Face's "gelu_new" and GPT-2's; ATen's everywhere.
inline at::Tensor gelu_tanh(const at::Tensor& x) { return at::gelu(x, "tanh"); }

}  // namespace sluice::nn
