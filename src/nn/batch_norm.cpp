#include "nn/batch_norm.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "core/log.h"
#include "core/text.h"
#include "nn/batch_norm_fast.h"
#include "nn/batch_norm_gpu.h"
#include "nn/batch_norm_sync.h"
#include "nn/bfloat16.h"

namespace sluice::nn {
namespace {

at::Tensor finish(at::Tensor y, const at::Tensor& residual, Activation activation) {
  if (residual.defined()) y = y + residual;
  return activation == Activation::kRelu ? at::relu(y) : y;
}

bool keeps(const ForwardContext& context) {
  return context.micro_batch >= 0 || context.numerics.batch_norm == BatchNormMode::kDeferred;
}

void warn_of_one_value(const std::string& state, const at::Tensor& x) {
  static std::atomic<bool> is_logged = false;
  if (is_logged.exchange(true)) return;
  log_warning("batch-norm ", state.substr(0, state.rfind('.')), " normalises one value per channel (",
              counted(x.size(0), "sample"), " of ", x.size(2), "x", x.size(3),
              " in a micro-batch), so its output is the bias and the running variance decays to 0. Use larger "
              "micro-batches (fewer pipeline.chunks or a larger train.global_batch), larger images, or "
              "pipeline.batch_norm = \"sync\".");
}

}  // namespace

BatchNormResult batch_norm_training(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight,
                                    const at::Tensor& bias, double epsilon, Activation activation,
                                    const RunningStatistics* running) {
  if (batch_norm_has_fast_path(x, residual, weight)) {
    return batch_norm_fast(x, residual, weight, bias, epsilon, activation);
  }
  if (batch_norm_runs_on_gpu(x, weight))
    return batch_norm_on_gpu(x, residual, weight, bias, epsilon, activation, running);
  if (is_bf16(x)) {
    BatchNormResult result = batch_norm_training(
        x.to(at::kFloat), residual.defined() ? residual.to(at::kFloat) : residual, weight, bias, epsilon, activation);
    result.y = result.y.to(at::kBFloat16);
    return result;
  }
  const auto [variance, middle] = at::var_mean(x.detach(), at::IntArrayRef{0, 2, 3}, /*unbiased=*/false);
  // 0 times an infinite variance is NaN. Without this, 1 / deviation would be 0 and hide the overflow.
  const at::Tensor scale = at::add(weight, variance, /*alpha=*/0);
  auto [y, mean, inverse_deviation] =
      at::native_batch_norm(x, scale, bias, {}, {}, /*training=*/true, /*momentum=*/0, epsilon);
  return {finish(y, residual, activation), {middle, variance, x.numel() / x.size(1)}};
}

// Chan et al. 1979: combines mean and sum of squared deviations of two sets.
BatchStatistics pooled(const BatchStatistics& a, const BatchStatistics& b) {
  if (b.count == 0) return a;
  const at::Tensor mean = b.mean.to(at::kDouble), variance = b.variance.to(at::kDouble);
  if (a.count == 0) return {mean, variance, b.count};
  const std::int64_t count = a.count + b.count;
  const double share = static_cast<double>(b.count) / static_cast<double>(count);
  const at::Tensor delta = mean - a.mean;
  return {a.mean + delta * share, a.variance * (1 - share) + variance * share + delta * delta * (share * (1 - share)),
          count};
}

at::Tensor to_sums(const BatchStatistics& statistics, std::int64_t channels) {
  if (statistics.count == 0) return at::zeros({1 + 2 * channels}, at::kDouble);
  const auto count = static_cast<double>(statistics.count);
  const at::Tensor mean = statistics.mean.to(at::kCPU, at::kDouble),
                   variance = statistics.variance.to(at::kCPU, at::kDouble);
  return at::cat({at::full({1}, count, at::kDouble), mean * count, (variance + mean * mean) * count});
}

BatchStatistics from_sums(const at::Tensor& sums) {
  const std::int64_t channels = (sums.numel() - 1) / 2;
  const auto count = sums[0].item<double>();
  if (count == 0) return {};
  const at::Tensor mean = sums.narrow(0, 1, channels) / count;
  return {mean, (sums.narrow(0, 1 + channels, channels) / count - mean * mean).clamp_min(0),
          static_cast<std::int64_t>(count)};
}

BatchNorm2d::BatchNorm2d(Registry& registry, const std::string& name, std::int64_t channels)
    : state_{&registry.add_parameter(name + ".weight", {channels}, Init::constant(1), ParameterRole::kNorm),
             &registry.add_parameter(name + ".bias", {channels}, Init::constant(0), ParameterRole::kNorm),
             &registry.add_buffer(name + ".running_mean", at::zeros({channels}, registry.dtype())),
             &registry.add_buffer(name + ".running_var", at::ones({channels}, registry.dtype())),
             &registry.add_buffer(name + ".num_batches_tracked", at::zeros({}, at::kLong))} {}

at::Tensor BatchNorm2d::weight() const {
  return state_.weight != nullptr ? state_.weight->value : at::ones_like(state_.running_mean->value);
}

at::Tensor BatchNorm2d::bias() const {
  return state_.bias != nullptr ? state_.bias->value : at::zeros_like(state_.running_mean->value);
}

at::Tensor BatchNorm2d::operator()(const at::Tensor& x, const ForwardContext& context, Activation activation,
                                   const at::Tensor& residual) {
  if (!context.training) {
    return finish(at::batch_norm(x, weight(), bias(), state_.running_mean->value, state_.running_var->value,
                                 /*training=*/false, numbers_.momentum, numbers_.epsilon, /*cudnn_enabled=*/true),
                  residual, activation);
  }
  BatchNormResult result;
  if (context.replicas != nullptr) {
    result = batch_norm_sync(x, weight(), bias(), numbers_.epsilon, *context.replicas);
    result.y = finish(result.y, residual, activation);
  } else {
    const RunningStatistics running{state_.running_mean->value, state_.running_var->value, numbers_.momentum};
    const bool updates_running = context.update_statistics && !keeps(context);
    result = batch_norm_training(x, residual, weight(), bias(), numbers_.epsilon, activation,
                                 updates_running ? &running : nullptr);
  }
  if (result.statistics.count == 1 && !context.is_measurement) warn_of_one_value(state_.running_mean->name, x);
  if (context.update_statistics) {
    if (keeps(context)) {
      keep(context.micro_batch, result.statistics);
    } else if (result.has_updated_running) {
      count_batch();
    } else {
      take_in(result.statistics);
    }
  }
  return result.y;
}

void BatchNorm2d::take_part_in_forward(const ForwardContext& context) {
  if (context.replicas == nullptr) return;
  const BatchStatistics all = sync_statistics_of_others(channels(), *context.replicas);
  if (context.update_statistics && all.count > 0) {
    const auto device = state_.running_mean->value.device();
    take_in({all.mean.to(device), all.variance.to(device), all.count});
  }
}

void BatchNorm2d::take_part_in_backward(const ForwardContext& context) const {
  if (context.replicas != nullptr) sync_gradient_of_others(channels(), *context.replicas);
}

std::vector<BatchNorm2d::Collected> BatchNorm2d::collect() { return std::exchange(pending_, {}); }

void BatchNorm2d::keep(std::int64_t micro_batch, const BatchStatistics& statistics) {
  if (pending_.empty() || pending_.back().micro_batch != micro_batch) pending_.push_back({micro_batch, {}});
  BatchStatistics& kept = pending_.back().statistics;
  kept = pooled(kept, statistics);
}

void BatchNorm2d::take_in(const BatchStatistics& batch) {
  if (batch.count == 0) return;
  const double unbiased =
      static_cast<double>(batch.count) / static_cast<double>(std::max<std::int64_t>(batch.count - 1, 1));
  const double momentum = numbers_.momentum;
  state_.running_mean->value.mul_(1 - momentum).add_(batch.mean, momentum);
  state_.running_var->value.mul_(1 - momentum).add_(batch.variance, momentum * unbiased);
  count_batch();
}

void BatchNorm2d::count_batch() {
  if (state_.batches_tracked != nullptr) state_.batches_tracked->value.add_(1);
}

}  // namespace sluice::nn
