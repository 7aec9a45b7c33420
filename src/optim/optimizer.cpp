#include "optim/optimizer.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "core/check.h"
#include "core/concat.h"
#include "optim/lamb.h"

namespace sluice::optim {
namespace {

// Parts begin and end at cache lines, so that no two threads write to the same line.
std::pair<std::int64_t, std::int64_t> bounds(std::int64_t elements, BufferPart part) {
  constexpr std::int64_t kLine = 64;
  const auto boundary = [&](int i) {
    return std::min(elements, (elements * i / part.count + kLine - 1) / kLine * kLine);
  };
  return {part.index == 0 ? 0 : boundary(part.index),
          part.index + 1 == part.count ? elements : boundary(part.index + 1)};
}

// Block size of updates that ATen has no fused kernel for; it bounds their temporary memory.
constexpr std::int64_t kBlock = 1 << 20;  // elements

// For the fused kernels: they divide by a float32 scale as div_() does, which saves a pass over the memory.
std::optional<at::Tensor> as_scale(double divisor, const at::Tensor& gradients) {
  if (divisor == 1.0 || !gradients.is_cpu() || gradients.scalar_type() != at::kFloat) return std::nullopt;
  return at::full({}, divisor, at::kFloat);
}

// Joins neighbouring ranges with the same settings, including the gaps between them.
std::vector<UpdateRange> merged(const std::vector<UpdateRange>& ranges) {
  std::vector<UpdateRange> all;
  for (const UpdateRange& range : ranges) {
    const bool is_alike = !all.empty() && all.back().decays == range.decays &&
                          all.back().lr_factor == range.lr_factor && all.back().missed == range.missed;
    if (is_alike) {
      all.back().end = range.end;
    } else {
      all.push_back(range);
    }
  }
  return all;
}

std::vector<const char*> state_names(const OptimizerOptions& options) {
  std::vector<const char*> names;
  if (options.kind == "momentum") {
    names = {"momentum_buffer"};
    if (options.nesterov_delay > 0) names.push_back("gradient_sum");
  } else if (options.kind == "rmsprop") {
    names = {"square_avg"};
  } else if (options.kind == "adam" || options.kind == "adamw" || options.kind == "lamb") {
    names = {"exp_avg", "exp_avg_sq"};
    if (options.amsgrad) names.push_back("max_exp_avg_sq");
  } else {
    check(options.kind == "sgd", "a known optimizer");
  }
  if (options.ema_decay > 0) names.push_back(kAverage);
  return names;
}

}  // namespace

std::string name_of(const OptimizerOptions& options) {
  return concat(options.kind, options.amsgrad ? "+amsgrad" : "", options.ema_decay > 0 ? "+ema" : "");
}

int count_states(const OptimizerOptions& options) { return static_cast<int>(state_names(options).size()); }

Optimizer::Optimizer(OptimizerOptions options, at::Tensor values, at::Tensor gradients, std::vector<UpdateRange> ranges)
    : options_(std::move(options)), values_(std::move(values)), gradients_(std::move(gradients)) {
  if (ranges.empty()) ranges = {{.begin = 0, .end = values_.numel()}};
  given_ = std::move(ranges);
  merge_ranges();
  for (const char* name : state_names(options_)) states_.emplace_back(name, at::zeros_like(values_));
}

void Optimizer::merge_ranges() { ranges_ = options_.kind == "lamb" ? given_ : merged(given_); }

std::vector<std::int64_t> Optimizer::updates() const {
  std::vector<std::int64_t> updates;
  for (const UpdateRange& range : given_) updates.push_back(steps_ - range.missed);
  return updates;
}

void Optimizer::set_steps(std::int64_t steps, const std::vector<std::int64_t>& updates) {
  check(updates.empty() || updates.size() == given_.size(), "one number of updates for each range");
  steps_ = steps;
  for (std::size_t i = 0; i < given_.size(); ++i) given_[i].missed = updates.empty() ? 0 : steps - updates[i];
  merge_ranges();
}

bool Optimizer::is_fused() const {
  return options_.kind != "rmsprop" && options_.kind != "lamb" && options_.nesterov_delay == 0;
}

Optimizer::Slice Optimizer::slice(std::int64_t begin, std::int64_t end) const {
  const auto part_of = [&](const at::Tensor& flat) { return flat.narrow(0, begin, end - begin); };
  Slice slice{.values = part_of(values_), .gradients = part_of(gradients_)};
  for (const auto& [name, state] : states_) slice.states.push_back(part_of(state));
  return slice;
}

void Optimizer::update(double lr, double divisor, BufferPart part) {
  const auto [begin, end] = bounds(values_.numel(), part);
  const at::NoGradGuard no_grad;
  for (const UpdateRange& range : ranges_) {
    const Rates rates{.lr = lr * range.lr_factor,
                      .weight_decay = range.decays ? options_.weight_decay : 0.0,
                      .updates = steps_ - range.missed};
    if (options_.kind == "lamb") {
      const bool is_ours = range.begin >= begin && range.begin < end;
      if (is_ours) update_range(range.begin, range.end, rates, divisor);
    } else if (std::max(begin, range.begin) < std::min(end, range.end)) {
      update_range(std::max(begin, range.begin), std::min(end, range.end), rates, divisor);
    }
  }
}

void Optimizer::update_range(std::int64_t begin, std::int64_t end, const Rates& rates, double divisor) const {
  const Slice whole = slice(begin, end);
  const auto scale = is_fused() ? as_scale(divisor, whole.gradients) : std::nullopt;
  if (divisor != 1.0 && !scale) whole.gradients.div_(divisor);
  if (options_.kind == "lamb") {
    update_lamb({.lr = rates.lr,
                 .beta1 = options_.beta1,
                 .beta2 = options_.beta2,
                 .eps = options_.eps,
                 .weight_decay = rates.weight_decay,
                 .steps = rates.updates},
                whole.values, whole.gradients, whole.states[0], whole.states[1]);
  } else if (options_.kind == "adam" || options_.kind == "adamw") {
    update_adam(whole, rates, scale);
  } else if (is_fused()) {
    update_sgd(whole, rates, scale);
  } else {
    update_in_blocks(begin, end, rates);
  }
  if (options_.ema_decay > 0) update_average(whole);
}

void Optimizer::update_in_blocks(std::int64_t begin, std::int64_t end, const Rates& rates) const {
  for (std::int64_t at = begin; at < end; at += kBlock) {
    const Slice block = slice(at, std::min(at + kBlock, end));
    const at::Tensor gradient =
        rates.weight_decay == 0 ? block.gradients : at::add(block.gradients, block.values, rates.weight_decay);
    if (options_.kind == "rmsprop") {
      update_rmsprop(block, gradient, rates.lr);
    } else {
      update_delayed_nesterov(block, gradient, rates.lr);
    }
  }
}

void Optimizer::update_average(const Slice& slice) const {
  const at::Tensor& average = slice.states.back();
  if (steps_ <= options_.ema_every) {
    average.copy_(slice.values);
  } else if (steps_ % options_.ema_every == 0) {
    average.lerp_(slice.values, 1 - options_.ema_decay);
  }
}

void Optimizer::update_sgd(const Slice& slice, const Rates& rates, const std::optional<at::Tensor>& divisor) const {
  // A zero buffer makes the first step like any other: buffer = momentum * 0 + gradient.
  const bool has_buffer = options_.kind == "momentum";
  const std::vector<at::Tensor> buffer(slice.states.begin(), slice.states.begin() + (has_buffer ? 1 : 0));
  at::_fused_sgd_({slice.values}, {slice.gradients}, buffer, rates.weight_decay, has_buffer ? options_.momentum : 0.0,
                  rates.lr, /*dampening=*/0.0, has_buffer && options_.nesterov, /*maximize=*/false,
                  /*is_first_step=*/false, divisor);
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

void Optimizer::update_adam(const Slice& slice, const Rates& rates, const std::optional<at::Tensor>& divisor) const {
  const at::Tensor steps = at::full({}, static_cast<double>(rates.updates),
                                    at::TensorOptions().dtype(at::kFloat).device(slice.values.device()));
  auto* fused = &at::_ops::_fused_adam_::call;
  if (options_.kind == "adamw") fused = &at::_ops::_fused_adamw_::call;
  const std::vector<at::Tensor> largest(slice.states.begin() + 2, slice.states.begin() + (options_.amsgrad ? 3 : 2));
  fused({slice.values}, {slice.gradients}, {slice.states[0]}, {slice.states[1]}, largest, {steps}, rates.lr,
        options_.beta1, options_.beta2, rates.weight_decay, options_.eps, options_.amsgrad, /*maximize=*/false, divisor,
        {});
}

}  // namespace sluice::optim
