#include "optim/lamb.h"

#include <cmath>

#include <ATen/ATen.h>

#include "optim/clip_norm.h"

namespace sluice::optim {
namespace {

// Brings the averages up to date. Returns the updates, still without learning rate and trust ratio.
std::vector<at::Tensor> updates_of(const LambRule& rule, at::TensorList values, at::TensorList gradients,
                                   at::TensorList exp_avg, at::TensorList exp_avg_sq) {
  const auto steps = static_cast<double>(rule.steps);
  const double correction1 = 1 - std::pow(rule.beta1, steps), correction2 = 1 - std::pow(rule.beta2, steps);
  at::_foreach_mul_(exp_avg, rule.beta1);
  at::_foreach_add_(exp_avg, gradients, 1 - rule.beta1);
  at::_foreach_mul_(exp_avg_sq, rule.beta2);
  at::_foreach_addcmul_(exp_avg_sq, gradients, gradients, 1 - rule.beta2);
  std::vector<at::Tensor> updates = at::_foreach_div(exp_avg, correction1), of_squares = at::_foreach_sqrt(exp_avg_sq);
  at::_foreach_div_(of_squares, std::sqrt(correction2));
  at::_foreach_add_(of_squares, rule.eps);
  at::_foreach_div_(updates, of_squares);
  if (rule.weight_decay != 0) at::_foreach_add_(updates, values, rule.weight_decay);
  return updates;
}

void update_together(const LambRule& rule, at::TensorList values, at::TensorList gradients, at::TensorList exp_avg,
                     at::TensorList exp_avg_sq) {
  const std::vector<at::Tensor> updates = updates_of(rule, values, gradients, exp_avg, exp_avg_sq);
  if (rule.weight_decay == 0) {
    at::_foreach_add_(values, updates, -rule.lr);
    return;
  }
  const auto norms_of = [](at::TensorList of) { return at::stack(at::_foreach_norm(of, 2, at::kDouble)); };
  const at::Tensor of_values = norms_of(values), of_updates = norms_of(updates);
  const at::Tensor trust = at::where(of_values.gt(0).logical_and(of_updates.gt(0)), of_values / of_updates, 1.0);
  const std::vector<at::Tensor> factors = trust.to(values[0].scalar_type()).unbind();
  for (std::size_t i = 0; i < updates.size(); ++i) values[i].addcmul_(updates[i], factors[i], -rule.lr);
}

}  // namespace

void update_lamb(const LambRule& rule, const at::Tensor& values, const at::Tensor& gradient, const at::Tensor& exp_avg,
                 const at::Tensor& exp_avg_sq) {
  const at::Tensor update = updates_of(rule, {values}, {gradient}, {exp_avg}, {exp_avg_sq}).front();
  double trust = 1;
  if (rule.weight_decay != 0) {
    const double of_values = std::sqrt(sum_of_squares(values)), of_update = std::sqrt(sum_of_squares(update));
    if (of_values > 0 && of_update > 0) trust = of_values / of_update;
  }
  values.add_(update, -rule.lr * trust);
}

void update_lamb(const LambRule& rule, at::TensorList values, at::TensorList gradients, at::TensorList exp_avg,
                 at::TensorList exp_avg_sq) {
  constexpr std::int64_t kMost = std::int64_t{1} << 26;  // elements at once, which bounds the temporary memory
  for (std::size_t begin = 0, end = 0; begin < values.size(); begin = end) {
    std::int64_t elements = 0;
    while (end < values.size() && (end == begin || elements + values[end].numel() <= kMost))
      elements += values[end++].numel();
    const auto part = [&](at::TensorList all) { return all.slice(begin, end - begin); };
    update_together(rule, part(values), part(gradients), part(exp_avg), part(exp_avg_sq));
  }
}

}  // namespace sluice::optim
