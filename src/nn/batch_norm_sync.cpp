#include "nn/batch_norm_sync.h"

#include <array>
#include <limits>

#include <torch/csrc/autograd/custom_function.h>

#include "nn/bfloat16.h"

namespace sluice::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::array<std::int64_t, 3> kAllButChannels{0, 2, 3};

at::Tensor on_cpu(const at::Tensor& numbers) { return numbers.to(at::kCPU, at::kDouble); }

at::Tensor per_channel(const at::Tensor& values, const at::Tensor& like) {
  return values.to(like.options()).view({1, -1, 1, 1});
}

// NaN if the variance is infinite: 0 would give finite outputs and hide the overflow.
at::Tensor inverse_deviation_of(const at::Tensor& variance, double epsilon) {
  return (variance + epsilon).rsqrt().masked_fill_(variance.isinf(), std::numeric_limits<double>::quiet_NaN());
}

class SyncFunction : public torch::autograd::Function<SyncFunction> {
 public:
  // mean, inverse_deviation: [C] float64 on the CPU; count: values per channel over all replicas.
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                            const at::Tensor& mean, const at::Tensor& inverse_deviation, std::int64_t count,
                            ReplicaSum* replicas) {
    ctx->save_for_backward({x, weight, mean, inverse_deviation});
    ctx->saved_data["count"] = count;
    ctx->saved_data["replicas"] = reinterpret_cast<std::int64_t>(replicas);
    const at::Tensor scale = per_channel(weight, x) * per_channel(inverse_deviation, x);
    return (x - per_channel(mean, x)) * scale + per_channel(bias, x);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];
    const at::Tensor& grad = grads[0];
    const at::Tensor inverse_deviation = per_channel(saved[3], x);
    const at::Tensor normalised = (x - per_channel(saved[2], x)) * inverse_deviation;
    const at::Tensor grad_bias = grad.sum(kAllButChannels);
    const at::Tensor grad_weight = (grad * normalised).sum(kAllButChannels);

    auto* replicas = reinterpret_cast<ReplicaSum*>(ctx->saved_data["replicas"].toInt());
    const at::Tensor sums = replicas->sum(at::cat({on_cpu(grad_bias), on_cpu(grad_weight)}));
    const std::int64_t channels = x.size(1);
    const at::Tensor means = sums / static_cast<double>(ctx->saved_data["count"].toInt());
    const at::Tensor mean_grad = per_channel(means.narrow(0, 0, channels), x);
    const at::Tensor mean_product = per_channel(means.narrow(0, channels, channels), x);

    variable_list result(7);  // x, weight, bias, mean, inverse deviation, count, replicas
    if (ctx->needs_input_grad(0)) {
      result[0] = (grad - mean_grad - normalised * mean_product) * (per_channel(weight, x) * inverse_deviation);
    }
    if (ctx->needs_input_grad(1)) result[1] = grad_weight;
    if (ctx->needs_input_grad(2)) result[2] = grad_bias;
    return result;
  }
};

}  // namespace

BatchNormResult batch_norm_sync(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                                double epsilon, ReplicaSum& replicas) {
  const at::Tensor x = in_float(input);
  const auto [variance, mean] = at::var_mean(x.detach(), kAllButChannels, /*unbiased=*/false);
  const BatchStatistics own{mean, variance, x.numel() / x.size(1)};
  const BatchStatistics all = from_sums(replicas.sum(to_sums(own, x.size(1))));
  const at::Tensor inverse_deviation = inverse_deviation_of(all.variance, epsilon);
  const at::Tensor y = SyncFunction::apply(x, weight, bias, all.mean, inverse_deviation, all.count, &replicas);
  return {y.to(input.scalar_type()), {all.mean.to(x.device()), all.variance.to(x.device()), all.count}};
}

BatchStatistics sync_statistics_of_others(std::int64_t channels, ReplicaSum& replicas) {
  return from_sums(replicas.sum(to_sums({}, channels)));
}

void sync_gradient_of_others(std::int64_t channels, ReplicaSum& replicas) {
  static_cast<void>(replicas.sum(at::zeros({2 * channels}, at::kDouble)));
}

}  // namespace sluice::nn
