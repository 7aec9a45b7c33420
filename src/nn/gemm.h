// gemm: the three matrix products of a linear layer, y = x w' + b, without autograd (linear.h). float32 on the CPU uses
// oneDNN in the layouts that it prefers; everything else, and tiny shapes, use ATen. The choice depends only on shapes,
// so a run repeats bit for bit. Matrices: x [rows, in], w [out, in] (any strides), b [out], y [rows, out].
#pragma once

#include <ATen/ATen.h>

#include <optional>

namespace sluice::nn {

at::Tensor linear_forward(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias);
at::Tensor linear_input_gradient(const at::Tensor& grad, const at::Tensor& weight);  // [rows, in]
at::Tensor linear_weight_gradient(const at::Tensor& grad, const at::Tensor& x);      // [out, in]

}  // namespace sluice::nn
