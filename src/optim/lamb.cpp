#include "optim/lamb.h"

#include <cmath>

#include <ATen/ATen.h>

#include "optim/clip_norm.h"

namespace sluice::optim {
namespace {

double norm_of(const at::Tensor& flat) {
  if (!flat.is_cpu()) return at::linalg_vector_norm(flat, 2, {}, false, at::kDouble).item<double>();
  return std::sqrt(sum_of_squares(flat));
}

}  // namespace

void update_lamb(const LambRule& rule, const at::Tensor& values, const at::Tensor& gradient, const at::Tensor& exp_avg,
                 const at::Tensor& exp_avg_sq) {
  const auto steps = static_cast<double>(rule.steps);
  const double correction1 = 1 - std::pow(rule.beta1, steps), correction2 = 1 - std::pow(rule.beta2, steps);
  exp_avg.mul_(rule.beta1).add_(gradient, 1 - rule.beta1);
  exp_avg_sq.mul_(rule.beta2).addcmul_(gradient, gradient, 1 - rule.beta2);
  const at::Tensor denominator = exp_avg_sq.sqrt().div_(std::sqrt(correction2)).add_(rule.eps);
  const at::Tensor update = exp_avg.div(correction1).div_(denominator);
  double trust = 1;
  if (rule.weight_decay != 0) {
    update.add_(values, rule.weight_decay);
    const double of_values = norm_of(values), of_update = norm_of(update);
    if (of_values > 0 && of_update > 0) trust = of_values / of_update;
  }
  values.add_(update, -rule.lr * trust);
}

}  // namespace sluice::optim
