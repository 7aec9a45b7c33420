// gemm: the three matrix products of a linear layer, y = x w' + b. Float32 on the CPU goes to oneDNN through LibTorch's
// dispatcher with operands laid out as its kernels like them best; everything else (float64, CUDA, tiny shapes, builds
// without oneDNN) goes to ATen. The choice depends on shapes only, so a run repeats bit for bit.
// Not here: autograd (linear.h). All matrices are 2-d; x [rows, in], w [out, in] (any strides), b [out], y [rows, out].
// Measurements: docs/performance.md.
#pragma once

#include <ATen/ATen.h>

#include <optional>

namespace sluice::nn {

at::Tensor linear_forward(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias);
at::Tensor linear_input_gradient(const at::Tensor& grad, const at::Tensor& weight);  // [rows, in]
at::Tensor linear_weight_gradient(const at::Tensor& grad, const at::Tensor& x);      // [out, in]

}  // namespace sluice::nn
