#include "optim/optimizer.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "core/check.h"

namespace sluice::optim {
namespace {

// BufferPart boundaries lie on cache lines, so that no two threads write to one.
std::pair<std::int64_t, std::int64_t> bounds(std::int64_t elements, BufferPart part) {
  constexpr std::int64_t kLine = 64;
  const auto boundary = [&](int i) {
    return std::min(elements, (elements * i / part.count + kLine - 1) / kLine * kLine);
  };
  return {part.index == 0 ? 0 : boundary(part.index),
          part.index + 1 == part.count ? elements : boundary(part.index + 1)};
}

// Of what ATen has no fused kernel for: what an update needs besides its states stays small.
constexpr std::int64_t kBlock = 1 << 20;  // elements

// For the fused kernels, which divide as div_() does and save a pass over the memory; they take a divisor in float32.
std::optional<at::Tensor> as_scale(double divisor, const at::Tensor& gradients) {
  if (divisor == 1.0 || !gradients.is_cpu() || gradients.scalar_type() != at::kFloat) return std::nullopt;
  return at::full({}, divisor, at::kFloat);
}

}  // namespace

int count_states(const OptimizerOptions& options) {
  const at::Tensor one = at::zeros({1});
  return static_cast<int>(Optimizer(options, one, one).states().size());
}

Optimizer::Optimizer(OptimizerOptions options, at::Tensor values, at::Tensor gradients)
    : options_(std::move(options)), values_(std::move(values)), gradients_(std::move(gradients)) {
  const auto add_state = [&](const char* name) { states_.emplace_back(name, at::zeros_like(values_)); };
  if (options_.kind == "momentum") {
    add_state("momentum_buffer");
    if (options_.nesterov_delay > 0) add_state("gradient_sum");
  } else if (options_.kind == "rmsprop") {
    add_state("square_avg");
  } else if (options_.kind == "adam" || options_.kind == "adamw") {
    add_state("exp_avg");
    add_state("exp_avg_sq");
  } else {
    check(options_.kind == "sgd", "an unknown optimizer came through the configuration");
  }
}

bool Optimizer::is_fused() const { return options_.kind != "rmsprop" && options_.nesterov_delay == 0; }

Optimizer::Slice Optimizer::slice(std::int64_t begin, std::int64_t end) const {
  const auto part_of = [&](const at::Tensor& flat) { return flat.narrow(0, begin, end - begin); };
  Slice slice{.values = part_of(values_), .gradients = part_of(gradients_)};
  for (const auto& [name, state] : states_) slice.states.push_back(part_of(state));
  return slice;
}

void Optimizer::update(double lr, double divisor, BufferPart part) {
  const auto [begin, end] = bounds(values_.numel(), part);
  if (begin >= end) return;
  const at::NoGradGuard no_grad;
  const Slice whole = slice(begin, end);
  const auto scale = is_fused() ? as_scale(divisor, whole.gradients) : std::nullopt;
  if (divisor != 1.0 && !scale) whole.gradients.div_(divisor);

  if (options_.kind == "adam" || options_.kind == "adamw") return update_adam(whole, lr, scale);
  if (is_fused()) return update_sgd(whole, lr, scale);
  for (std::int64_t at = begin; at < end; at += kBlock) {
    const Slice block = slice(at, std::min(at + kBlock, end));
    const at::Tensor gradient =
        options_.weight_decay == 0 ? block.gradients : at::add(block.gradients, block.values, options_.weight_decay);
    if (options_.kind == "rmsprop") {
      update_rmsprop(block, gradient, lr);
    } else {
      update_delayed_nesterov(block, gradient, lr);
    }
  }
}

void Optimizer::update_sgd(const Slice& slice, double lr, const std::optional<at::Tensor>& divisor) const {
  // A zero buffer makes the first step the same as any other: buffer = momentum * 0 + gradient.
  const bool has_buffer = !slice.states.empty();
  at::_fused_sgd_(
      {slice.values}, {slice.gradients}, slice.states, options_.weight_decay, has_buffer ? options_.momentum : 0.0, lr,
      /*dampening=*/0.0, has_buffer && options_.nesterov, /*maximize=*/false, /*is_first_step=*/false, divisor);
}

void Optimizer::update_rmsprop(const Slice& slice, const at::Tensor& gradient, double lr) const {
  const at::Tensor& square = slice.states[0];
  square.mul_(options_.rms_alpha).addcmul_(gradient, gradient, 1.0 - options_.rms_alpha);
  slice.values.addcdiv_(gradient, square.sqrt().add_(options_.eps), -lr);
}

void Optimizer::update_delayed_nesterov(const Slice& slice, const at::Tensor& gradient, double lr) const {
  const auto delay = static_cast<double>(options_.nesterov_delay);
  const at::Tensor &momentum = slice.states[0], &sum = slice.states[1];
  sum.add_(gradient);
  slice.values.add_(gradient, -lr / delay);
  if (steps_ % options_.nesterov_delay != 0) return;
  momentum.mul_(options_.momentum).add_(sum, 1.0 / delay);
  slice.values.add_(momentum, -lr * options_.momentum);
  sum.zero_();
}

void Optimizer::update_adam(const Slice& slice, double lr, const std::optional<at::Tensor>& divisor) const {
  const at::Tensor steps =
      at::full({}, static_cast<double>(steps_), at::TensorOptions().dtype(at::kFloat).device(slice.values.device()));
  auto* fused = &at::_ops::_fused_adam_::call;
  if (options_.kind == "adamw") fused = &at::_ops::_fused_adamw_::call;
  fused({slice.values}, {slice.gradients}, {slice.states[0]}, {slice.states[1]}, {}, {steps}, lr, options_.beta1,
        options_.beta2, options_.weight_decay, options_.eps, /*amsgrad=*/false, /*maximize=*/false, divisor, {});
}

}  // namespace sluice::optim
