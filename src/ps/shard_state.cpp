#include "ps/shard_state.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "core/check.h"
#include "optim/clip_norm.h"

namespace sluice::ps {
namespace {

// Whether another tensor shares this memory. If not, all earlier reads by other threads have completed.
bool is_held(const at::Tensor& values) {
  const bool is_held = values.storage().use_count() > 1;
  std::atomic_thread_fence(std::memory_order_acquire);  // pairs with the release of LibTorch's use count
  return is_held;
}

}  // namespace

ShardState::ShardState(const optim::OptimizerOptions& optimizer, const at::Tensor& values)
    : values_(values.clone()), optimizer_(optimizer, values_, {}) {}

void ShardState::load_optimizer(const std::string& name, const at::Tensor& state) {
  const auto& states = optimizer_.states();
  const auto found = std::ranges::find(states, name, [](const auto& named) { return named.first; });
  check(found != states.end(), "an optimizer with the state that is loaded");
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

void ShardState::use_values(at::Tensor values) {
  values_ = std::move(values);
  optimizer_.use_values(values_);
}

void ShardState::update(double lr, double divisor) {
  if (is_held(values_)) use_values(values_.clone());
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

void ShardState::take_mixed() { use_values(std::exchange(sum_, {})); }

}  // namespace sluice::ps
