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
constexpr std::int64_t kBlock = 1 << 20, kGpuBlock = 1 << 24;  // elements

// For the fused kernels: they divide by a float32 scale as div_() does, which saves a pass over the memory.
std::optional<at::Tensor> as_scale(double divisor, const at::Tensor& gradients) {
  if (divisor == 1.0 || gradients.scalar_type() != at::kFloat) return std::nullopt;
  return at::full({}, divisor, gradients.options());
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

std::vector<Optimizer::Group> Optimizer::groups(double lr, BufferPart part) const {
  const auto [begin, end] = bounds(values_.numel(), part);
  std::vector<Group> groups;
  for (const UpdateRange& range : ranges_) {
    Range own{std::max(begin, range.begin), std::min(end, range.end)};
    if (options_.kind == "lamb") {
      const bool is_ours = range.begin >= begin && range.begin < end;
      own = {range.begin, is_ours ? range.end : range.begin};
    }
    if (own.begin >= own.end) continue;
    const Group wanted{.lr = lr * range.lr_factor,
                       .weight_decay = range.decays ? options_.weight_decay : 0.0,
                       .updates = steps_ - range.missed};
    const auto same = std::ranges::find_if(groups, [&](const Group& group) {
      return group.lr == wanted.lr && group.weight_decay == wanted.weight_decay && group.updates == wanted.updates;
    });
    Group& group = same != groups.end() ? *same : groups.emplace_back(wanted);
    group.ranges.push_back(own);
  }
  return groups;
}

Optimizer::Slices Optimizer::slices(std::span<const Range> ranges) const {
  const auto of = [&](const at::Tensor& flat) {
    std::vector<at::Tensor> parts;
    for (const auto& [begin, end] : ranges) parts.push_back(flat.narrow(0, begin, end - begin));
    return parts;
  };
  Slices all{.values = of(values_), .gradients = of(gradients_), .states = {}};
  for (const auto& [name, state] : states_) all.states.push_back(of(state));
  return all;
}

void Optimizer::update(double lr, double divisor, BufferPart part) {
  const at::NoGradGuard no_grad;
  for (const Group& group : groups(lr, part)) update_group(group, divisor);
}

void Optimizer::update_group(const Group& group, double divisor) const {
  const Slices all = slices(group.ranges);
  const auto scale = is_fused() ? as_scale(divisor, gradients_) : std::nullopt;
  if (divisor != 1.0 && !scale) at::_foreach_div_(all.gradients, divisor);
  if (options_.kind == "lamb") {
    update_by_lamb(all, group);
  } else if (options_.kind == "adam" || options_.kind == "adamw") {
    update_adam(all, group, scale);
  } else if (is_fused()) {
    update_sgd(all, group, scale);
  } else {
    update_in_blocks(group);
  }
  if (options_.ema_decay > 0) update_average(all);
}

void Optimizer::update_by_lamb(const Slices& all, const Group& group) const {
  const LambRule rule{.lr = group.lr,
                      .beta1 = options_.beta1,
                      .beta2 = options_.beta2,
                      .eps = options_.eps,
                      .weight_decay = group.weight_decay,
                      .steps = group.updates};
  if (!values_.is_cpu()) return update_lamb(rule, all.values, all.gradients, all.states[0], all.states[1]);
  for (std::size_t i = 0; i < all.values.size(); ++i)
    update_lamb(rule, all.values[i], all.gradients[i], all.states[0][i], all.states[1][i]);
}

void Optimizer::update_in_blocks(const Group& group) const {
  const std::int64_t size = values_.is_cpu() ? kBlock : kGpuBlock;
  for (const auto& [begin, end] : group.ranges) {
    for (std::int64_t at = begin; at < end; at += size) {
      const Range range{at, std::min(at + size, end)};
      const Slices block = slices({&range, 1});
      const at::Tensor &own = block.gradients[0],
                       gradient = group.weight_decay == 0 ? own : at::add(own, block.values[0], group.weight_decay);
      if (options_.kind == "rmsprop") {
        update_rmsprop(block, gradient, group.lr);
      } else {
        update_delayed_nesterov(block, gradient, group.lr);
      }
    }
  }
}

void Optimizer::update_average(const Slices& all) const {
  if (steps_ <= options_.ema_every) {
    at::_foreach_copy_(all.states.back(), all.values);
  } else if (steps_ % options_.ema_every == 0) {
    at::_foreach_lerp_(all.states.back(), all.values, 1 - options_.ema_decay);
  }
}

void Optimizer::update_sgd(const Slices& all, const Group& group, const std::optional<at::Tensor>& divisor) const {
  // A zero buffer makes the first step like any other: buffer = momentum * 0 + gradient.
  const bool has_buffer = options_.kind == "momentum";
  at::_fused_sgd_(all.values, all.gradients, has_buffer ? all.states[0] : std::vector<at::Tensor>(), group.weight_decay,
                  has_buffer ? options_.momentum : 0.0, group.lr, /*dampening=*/0.0, has_buffer && options_.nesterov,
                  /*maximize=*/false, /*is_first_step=*/false, divisor);
}

void Optimizer::update_rmsprop(const Slices& block, const at::Tensor& gradient, double lr) const {
  const at::Tensor& square = block.states[0][0];
  square.mul_(options_.rms_alpha).addcmul_(gradient, gradient, 1.0 - options_.rms_alpha);
  block.values[0].addcdiv_(gradient, square.sqrt().add_(options_.eps), -lr);
}

void Optimizer::update_delayed_nesterov(const Slices& block, const at::Tensor& gradient, double lr) const {
  const auto delay = static_cast<double>(options_.nesterov_delay);
  const at::Tensor &values = block.values[0], &momentum = block.states[0][0], &sum = block.states[1][0];
  sum.add_(gradient);
  values.add_(gradient, -lr / delay);
  if (steps_ % options_.nesterov_delay != 0) return;
  momentum.mul_(options_.momentum).add_(sum, 1.0 / delay);
  values.add_(momentum, -lr * options_.momentum);
  sum.zero_();
}

void Optimizer::update_adam(const Slices& all, const Group& group, const std::optional<at::Tensor>& divisor) const {
  const at::Tensor updates =
      at::full({}, static_cast<double>(group.updates), at::TensorOptions().dtype(at::kFloat).device(values_.device()));
  const std::vector<at::Tensor> steps(all.values.size(), updates);
  auto* fused = &at::_ops::_fused_adam_::call;
  if (options_.kind == "adamw") fused = &at::_ops::_fused_adamw_::call;
  fused(all.values, all.gradients, all.states[0], all.states[1],
        options_.amsgrad ? all.states[2] : std::vector<at::Tensor>(), steps, group.lr, options_.beta1, options_.beta2,
        group.weight_decay, options_.eps, options_.amsgrad, /*maximize=*/false, divisor, {});
}

}  // namespace sluice::optim
