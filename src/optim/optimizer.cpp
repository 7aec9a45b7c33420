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
  } else if (options_.kind == "adam" || options_.kind == "adamw") {
    add_state("exp_avg");
    add_state("exp_avg_sq");
  } else {
    check(options_.kind == "sgd", "an unknown optimizer came through the configuration");
  }
}

void Optimizer::update(double lr, double divisor, BufferPart part) {
  const auto [begin, end] = bounds(values_.numel(), part);
  if (begin >= end) return;
  const at::NoGradGuard no_grad;
  const auto slice = [begin = begin, end = end](const at::Tensor& flat) { return flat.narrow(0, begin, end - begin); };
  const at::Tensor values = slice(values_), gradients = slice(gradients_);
  if (divisor != 1.0) gradients.div_(divisor);

  if (options_.kind == "sgd" || options_.kind == "momentum") {
    // A zero buffer makes the first step the same as any other: buffer = momentum * 0 + gradient.
    std::vector<at::Tensor> buffers;
    for (const auto& [name, state] : states_) buffers.push_back(slice(state));
    at::_fused_sgd_(
        {values}, {gradients}, buffers, options_.weight_decay, buffers.empty() ? 0.0 : options_.momentum, lr,
        /*dampening=*/0.0, !buffers.empty() && options_.nesterov, /*maximize=*/false, /*is_first_step=*/false);
    return;
  }
  const at::Tensor steps =
      at::full({}, static_cast<double>(steps_), at::TensorOptions().dtype(at::kFloat).device(values.device()));
  auto* fused = &at::_ops::_fused_adam_::call;
  if (options_.kind == "adamw") fused = &at::_ops::_fused_adamw_::call;
  fused({values}, {gradients}, {slice(states_[0].second)}, {slice(states_[1].second)}, {}, {steps}, lr, options_.beta1,
        options_.beta2, options_.weight_decay, options_.eps, /*amsgrad=*/false, /*maximize=*/false, {}, {});
}

}  // namespace sluice::optim
