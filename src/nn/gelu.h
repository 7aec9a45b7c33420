// gelu: x Phi(x) with the exact error function (Hugging Face's "gelu"). Float32 on the CPU uses the kernels of kernels/
// (one exponential serves the distribution and its density), everything else ATen.
// Double backward is supported only on ATen's path.
#pragma once

#include <ATen/ATen.h>

namespace sluice::nn {

at::Tensor gelu(const at::Tensor& x);

}  // namespace sluice::nn
