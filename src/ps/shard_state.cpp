#include "ps/shard_state.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "core/check.h"
#include "optim/clip_norm.h"

namespace sluice::ps {

ShardState::ShardState(const optim::OptimizerOptions& optimizer, const at::Tensor& values)
    : values_(values.clone()), sum_(at::zeros_like(values_)), optimizer_(optimizer, values_, sum_) {}

void ShardState::load_optimizer(const std::string& name, const at::Tensor& state) {
  const auto& states = optimizer_.states();
  const auto found = std::ranges::find(states, name, [](const auto& named) { return named.first; });
  check(found != states.end(), "an optimizer does not have a state that it goes on from");
  found->second.copy_(state);
}

double ShardState::add_up(const Mix& mix, const std::vector<at::Tensor>& pushed) {
  const at::NoGradGuard no_grad;
  sum_.zero_();
  for (const MixPart& part : mix.parts) sum_.add_(pushed[part.push], part.take);
  return optim::sum_of_squares(sum_);
}

void ShardState::update(double lr, double divisor) {
  optimizer_.begin_step();
  optimizer_.update(lr, divisor, {});
}

bool ShardState::mix_weights(const Mix& mix, const std::vector<at::Tensor>& pushed) {
  const at::NoGradGuard no_grad;
  sum_.copy_(values_).mul_(mix.keep);
  for (const MixPart& part : mix.parts) sum_.add_(pushed[part.push], part.take);
  sum_.div_(mix.divisor);
  return std::isfinite(optim::sum_of_magnitudes(sum_));
}

void ShardState::take_mixed() {
  const at::NoGradGuard no_grad;
  values_.copy_(sum_);
}

}  // namespace sluice::ps
