// lamb: LAMB (You et al., 2020, arXiv 1904.00962) for one parameter or many, as timm.optim.Lamb with its defaults: bias
// correction, decay inside the update, and the trust ratio |w| / |update| for parameters that decay. Other parameters
// take Adam's update. max_grad_norm is left out; train.clip_norm replaces it. On CPUs the norms are summed in a fixed
// order. Threads: disjoint parameters may be updated at once.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace sluice::optim {

struct LambRule {
  double lr = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-6;
  double weight_decay = 0;
  std::int64_t steps = 1;  // including this one
};

// All tensors are flat and belong to one parameter. All but the gradient are overwritten.
void update_lamb(const LambRule& rule, const at::Tensor& values, const at::Tensor& gradient, const at::Tensor& exp_avg,
                 const at::Tensor& exp_avg_sq);
// For GPUs: a kernel updates many parameters, and the host does not wait. Each list has a flat tensor for each
// parameter. Temporary memory: that of two tensors with 64 Mi elements, or of the largest parameter.
void update_lamb(const LambRule& rule, at::TensorList values, at::TensorList gradients, at::TensorList exp_avg,
                 at::TensorList exp_avg_sq);

}  // namespace sluice::optim
