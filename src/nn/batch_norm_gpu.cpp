#include "nn/batch_norm_gpu.h"

#include <array>
#include <limits>

#include <ATen/detail/CUDAHooksInterface.h>
#include <torch/csrc/autograd/custom_function.h>

#include "nn/bfloat16.h"
#include "nn/cuda/operations.h"
#include "nn/own_operator.h"

namespace sluice::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::int64_t kMostSamplesOfCudnn = 880'801;  // in training; both limits are LibTorch's own

bool suits_cudnn(const at::Tensor& x, double epsilon) {
  const auto& hooks = at::detail::getCUDAHooks();
  return x.scalar_type() == at::kFloat && at::globalContext().userEnabledCuDNN() && hooks.compiledWithCuDNN() &&
         epsilon >= hooks.batchnormMinEpsilonCuDNN() && x.size(0) <= kMostSamplesOfCudnn &&
         x.numel() < std::numeric_limits<std::int32_t>::max();
}

struct Normalised {
  at::Tensor y, mean, inverse_deviation, reserve;  // reserve: cuDNN's buffer for backward, else undefined
};

// Changes the running statistics.
Normalised normalise(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double epsilon,
                     const RunningStatistics& running) {
  Normalised result;
  if (suits_cudnn(x, epsilon)) {
    std::tie(result.y, result.mean, result.inverse_deviation, result.reserve) = at::cudnn_batch_norm(
        x, weight, bias, running.mean, running.variance, /*training=*/true, running.momentum, epsilon);
  } else {
    std::tie(result.y, result.mean, result.inverse_deviation) = at::native_batch_norm(
        x, weight, bias, running.mean, running.variance, /*training=*/true, running.momentum, epsilon);
  }
  return result;
}

class BatchNormOnGpu : public torch::autograd::Function<BatchNormOnGpu> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& input, const std::optional<at::Tensor>& residual,
                            const at::Tensor& weight, const at::Tensor& bias, double epsilon, bool relu,
                            const RunningStatistics* running) {
    const at::MemoryFormat layout = input.suggest_memory_format();
    const at::Tensor x = input.contiguous(layout);
    Normalised normalised = normalise(x, weight, bias, epsilon, *running);
    at::Tensor& y = normalised.y;
    {
      const at::Tensor other = residual ? residual->contiguous(layout) : at::Tensor();
      OwnOperator call("sluice::finish_batch_norm", {y, other});
      gpu::finish_batch_norm(y, other, normalised.inverse_deviation, relu);
    }
    ctx->save_for_backward(
        {x, relu ? y : at::Tensor(), weight, normalised.mean, normalised.inverse_deviation, normalised.reserve});
    ctx->saved_data["epsilon"] = epsilon;
    ctx->saved_data["residual"] = residual.has_value();
    return y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &y = saved[1], &weight = saved[2], &mean = saved[3], &inverse = saved[4],
                     &reserve = saved[5];
    const double epsilon = ctx->saved_data["epsilon"].toDouble();
    at::Tensor grad = grads[0].contiguous(x.suggest_memory_format());
    if (y.defined()) grad = at::threshold_backward(grad, y, 0);
    constexpr std::array<bool, 3> kAll{true, true, true};
    auto [grad_x, grad_weight, grad_bias] =
        reserve.defined()
            ? at::cudnn_batch_norm_backward(x, grad, weight, {}, {}, mean, inverse, epsilon, reserve)
            : at::native_batch_norm_backward(grad, x, weight, {}, {}, mean, inverse, /*train=*/true, epsilon, kAll);
    const bool has_residual = ctx->saved_data["residual"].toBool();
    return {grad_x, has_residual ? grad : at::Tensor(), grad_weight, grad_bias, {}, {}, {}};
  }
};

}  // namespace

bool batch_norm_runs_on_gpu(const at::Tensor& x, const at::Tensor& weight) {
  // The unbiased variance of a single number is infinite.
  return gpu::suits(x) && x.dim() == 4 && x.numel() > x.size(1) && weight.scalar_type() == at::kFloat;
}

BatchNormResult batch_norm_on_gpu(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight,
                                  const at::Tensor& bias, double epsilon, Activation activation,
                                  const RunningStatistics* running) {
  const auto other = residual.defined() ? std::optional<at::Tensor>(residual.to(x.scalar_type())) : std::nullopt;
  const auto run = [&](const RunningStatistics& changed) {
    return BatchNormOnGpu::apply(x, other, weight, bias, epsilon, activation == Activation::kRelu, &changed);
  };
  const std::int64_t count = x.numel() / x.size(1);
  if (running != nullptr) return {.y = run(*running), .statistics = {.count = count}, .has_updated_running = true};
  // With a momentum of 1, running statistics become the batch's mean and unbiased variance.
  const RunningStatistics of_batch{at::zeros_like(weight.detach()), at::zeros_like(weight.detach()), 1};
  at::Tensor y = run(of_batch);
  const auto to_biased = static_cast<double>(count - 1) / static_cast<double>(count);
  return {.y = std::move(y), .statistics = {of_batch.mean, of_batch.variance.mul_(to_biased), count}};
}

}  // namespace sluice::nn
