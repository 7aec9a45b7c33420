// lamb: LAMB (You et al., 2020, arXiv 1904.00962) for one parameter, as timm.optim.Lamb with its defaults but for
// max_grad_norm, whose place train.clip_norm takes: bias correction, the decay inside the update, and the trust ratio
// |w| / |update| for parameters that decay; the others take Adam's update. Threads: disjoint parameters may be updated
// at once. The norms are added up in a fixed order on CPUs, so that all processes come to the same bits.
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
  std::int64_t steps = 1;  // with this one
};

// All flat, of one parameter; written over but for the gradient.
void update_lamb(const LambRule& rule, const at::Tensor& values, const at::Tensor& gradient, const at::Tensor& exp_avg,
                 const at::Tensor& exp_avg_sq);

}  // namespace sluice::optim
