#include "ps/shard_state.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "core/check.h"
#include "optim/clip_norm.h"

namespace sluice::ps {

ShardState::ShardState(const optim::OptimizerOptions& optimizer, const at::Tensor& values)
    : values_(values.clone()), optimizer_(optimizer, values_, {}) {}

void ShardState::load_optimizer(const std::string& name, const at::Tensor& state) {
  const auto& states = optimizer_.states();
  const auto found = std::ranges::find(states, name, [](const auto& named) { return named.first; });
  check(found != states.end(), "an optimizer does not have a state that it goes on from");
  found->second.copy_(state);
}

void ShardState::add_up(const Mix& mix, const std::vector<at::Tensor>& pushed) {
  const at::NoGradGuard no_grad;
  if (mix.parts.empty()) sum_ = at::zeros_like(values_);
  for (const MixPart& part : mix.parts) {
    if (&part != mix.parts.data()) {
      sum_.add_(pushed[part.push], part.take);
    } else {
      sum_ = pushed[part.push];
      if (part.take != 1) sum_.mul_(part.take);
    }
  }
}

double ShardState::sum_of_squares() const { return optim::sum_of_squares(sum_); }
bool ShardState::is_finite() const { return optim::is_finite(sum_); }

void ShardState::update(double lr, double divisor) {
  optimizer_.use_gradients(std::exchange(sum_, {}));
  optimizer_.begin_step();
  optimizer_.update(lr, divisor, {});
  optimizer_.use_gradients({});
}

bool ShardState::mix_weights(const Mix& mix, const std::vector<at::Tensor>& pushed) {
  const at::NoGradGuard no_grad;
  sum_ = at::mul(values_, mix.keep);
  for (const MixPart& part : mix.parts) sum_.add_(pushed[part.push], part.take);
  sum_.div_(mix.divisor);
  return is_finite();
}

void ShardState::take_mixed() {
  const at::NoGradGuard no_grad;
  values_.copy_(std::exchange(sum_, {}));
}

}  // namespace sluice::ps
