#include "optim/clip_norm.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>

namespace sluice::optim {
namespace {

double sum_of_powers(const at::Tensor& flat, int power) {
  constexpr std::int64_t kBlock = 1 << 16;  // bounds a copy: a norm in another type than its input copies the input
  at::Tensor sum = at::zeros({}, flat.options().dtype(at::kDouble));
  for (const at::Tensor& block : flat.split(kBlock))
    sum += at::linalg_vector_norm(block, power, {}, false, at::kDouble).pow(power);
  return sum.item<double>();
}

}  // namespace

double sum_of_squares(const at::Tensor& flat) { return sum_of_powers(flat, 2); }

double sum_of_magnitudes(const at::Tensor& flat) { return sum_of_powers(flat, 1); }

bool is_finite(const at::Tensor& flat) {
  if (flat.numel() == 0) return true;
  const auto [least, most] = at::aminmax(flat);  // both are NaN if an element is
  return std::isfinite(least.item<double>()) && std::isfinite(most.item<double>());
}

double clip_factor(double norm, double most) {
  constexpr double kEpsilon = 1e-6;  // as in torch.nn.utils.clip_grad_norm_
  return std::min(1.0, most / (norm + kEpsilon));
}

}  // namespace sluice::optim
