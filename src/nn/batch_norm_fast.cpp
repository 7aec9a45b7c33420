#include "nn/batch_norm_fast.h"

#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <limits>

#include "nn/kernel_data.h"
#include "nn/own_operator.h"
#include "nn/parallel.h"

namespace sluice::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr auto kLayout = at::MemoryFormat::ChannelsLast;

struct Rows {  // [N, C, H, W] in channels_last as a matrix
  std::int64_t count, channels;
  explicit Rows(const at::Tensor& x) : count(x.numel() / x.size(1)), channels(x.size(1)) {}
  [[nodiscard]] std::int64_t piece() const { return std::max<std::int64_t>(kPieceValues / channels, 1); }
  [[nodiscard]] std::int64_t pieces() const { return (count + piece() - 1) / piece(); }

  template <typename Body>
  void for_pieces(const Body& body) const {
    parallel_for(0, pieces(), 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) body(i, i * piece(), std::min(piece(), count - i * piece()));
    });
  }
};

struct ChannelSums {
  std::vector<double> first, second;
};

// Runs kernel(first row, rows, first sums, second sums) on every piece and adds up the pieces in order.
template <typename Kernel>
ChannelSums channel_sums(const Rows& rows, const Kernel& kernel) {
  const std::int64_t channels = rows.channels;
  std::vector<float> partial(static_cast<std::size_t>(2 * channels * rows.pieces()));
  rows.for_pieces([&](std::int64_t i, std::int64_t row, std::int64_t count) {
    float* sums = partial.data() + 2 * channels * i;
    kernel(row, count, sums, sums + channels);
  });
  ChannelSums total{std::vector<double>(channels), std::vector<double>(channels)};
  for (std::int64_t i = 0; i < rows.pieces(); ++i) {
    const float* sums = partial.data() + 2 * channels * i;
    for (std::int64_t c = 0; c < channels; ++c) {
      total.first[c] += sums[c];
      total.second[c] += sums[channels + c];
    }
  }
  return total;
}

// Turns a variance beyond float32 into NaN: 1 / infinity = 0 would give finite outputs and hide the overflow.
float representable(double variance) {
  const auto value = static_cast<float>(std::max(variance, 0.0));
  return std::isinf(value) ? std::numeric_limits<float>::quiet_NaN() : value;
}

// Mean and biased variance, from deviations to the first row, which limits cancellation.
template <typename T>
BatchStatistics measure(const at::Tensor& x) {
  const Rows rows(x);
  const T* data = values_of<T>(x);
  const auto& kernel = kernels::best().batch_norm.of<T>();
  const auto options = x.options().dtype(at::kFloat).memory_format(at::MemoryFormat::Contiguous);
  std::vector<float> shifts;
  for (std::int64_t c = 0; c < rows.channels; ++c) shifts.push_back(number(data[c]));
  const ChannelSums sums = channel_sums(rows, [&](std::int64_t row, std::int64_t count, float* sum, float* squares) {
    kernel.statistics(data + row * rows.channels, shifts.data(), count, rows.channels, sum, squares);
  });
  BatchStatistics result{at::empty({rows.channels}, options), at::empty({rows.channels}, options), rows.count};
  auto *mean = result.mean.mutable_data_ptr<float>(), *variance = result.variance.mutable_data_ptr<float>();
  const auto count = static_cast<double>(rows.count);
  for (std::int64_t c = 0; c < rows.channels; ++c) {
    const double shift = sums.first[c] / count;
    mean[c] = static_cast<float>(shifts[c] + shift);
    variance[c] = representable(sums.second[c] / count - shift * shift);
  }
  return result;
}

struct Factors {
  at::Tensor a, b, c, grad_weight, grad_bias;
};

// With i = 1 / deviation: grad_x = w i (g - mean(g) - (x - m) i^2 mean(g (x - m))) = a g + b (x - m) + c.
void fill_factors(const ChannelSums& sums, const Rows& rows, const at::Tensor& weight, const at::Tensor& inverse,
                  const Factors& out) {
  const auto *w = weight.const_data_ptr<float>(), *i = inverse.const_data_ptr<float>();
  auto *a = out.a.mutable_data_ptr<float>(), *b = out.b.mutable_data_ptr<float>(), *c = out.c.mutable_data_ptr<float>(),
       *grad_weight = out.grad_weight.mutable_data_ptr<float>(), *grad_bias = out.grad_bias.mutable_data_ptr<float>();
  const auto count = static_cast<double>(rows.count);
  for (std::int64_t ch = 0; ch < rows.channels; ++ch) {
    const double scale = static_cast<double>(w[ch]) * i[ch];
    a[ch] = static_cast<float>(scale);
    b[ch] = static_cast<float>(-scale * i[ch] * i[ch] * sums.second[ch] / count);
    c[ch] = static_cast<float>(-scale * sums.first[ch] / count);
    grad_weight[ch] = static_cast<float>(sums.second[ch] * i[ch]);
    grad_bias[ch] = static_cast<float>(sums.first[ch]);
  }
}

template <typename T>
class BatchNormFunction : public torch::autograd::Function<BatchNormFunction<T>> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const std::optional<at::Tensor>& residual,
                            const at::Tensor& weight, const at::Tensor& bias, double epsilon, bool relu,
                            BatchStatistics* statistics) {
    OwnOperator call("sluice::batch_norm", {x, residual.value_or(at::Tensor()), weight, bias});
    *statistics = measure<T>(x);
    const Rows rows(x);
    const at::Tensor inverse = (statistics->variance + epsilon).rsqrt_();
    const at::Tensor scale = weight * inverse;
    const at::Tensor offset = bias - statistics->mean * scale;
    at::Tensor y = at::empty_like(x, x.options(), kLayout);
    const T *from = values_of<T>(x), *other = values_of<T>(residual.value_or(at::Tensor()));
    const float *a = values_of<float>(scale), *b = values_of<float>(offset);
    T* to = mutable_values_of<T>(y);
    const auto& kernel = kernels::best().batch_norm.of<T>();
    rows.for_pieces([&](std::int64_t, std::int64_t row, std::int64_t count) {
      const std::int64_t at = row * rows.channels;
      kernel.apply(from + at, other == nullptr ? nullptr : other + at, a, b, count, rows.channels, relu, to + at);
    });
    call.made({y, statistics->mean, statistics->variance});
    ctx->save_for_backward({x, relu ? y : at::Tensor(), weight, statistics->mean, inverse});
    ctx->saved_data["residual"] = residual.has_value();
    return y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &y = saved[1], &weight = saved[2], &mean = saved[3], &inverse = saved[4];
    const bool has_residual = ctx->saved_data["residual"].toBool();
    const at::Tensor grad = grads[0].contiguous(kLayout);
    OwnOperator call("sluice::batch_norm_backward", {grad, x, y, weight, mean, inverse});
    const Rows rows(x);
    const T *xs = values_of<T>(x), *ys = values_of<T>(y), *gs = values_of<T>(grad);
    const float* middle = values_of<float>(mean);
    const auto& kernel = kernels::best().batch_norm.of<T>();
    const ChannelSums sums = channel_sums(rows, [&](std::int64_t row, std::int64_t count, float* sum, float* dot) {
      const std::int64_t at = row * rows.channels;
      kernel.gradient_sums(xs + at, ys == nullptr ? nullptr : ys + at, gs + at, middle, count, rows.channels, sum, dot);
    });

    const auto factors = [&] { return at::empty_like(mean); };
    const at::Tensor a = factors(), b = factors(), c = factors(), grad_weight = factors(), grad_bias = factors();
    fill_factors(sums, rows, weight, inverse, {a, b, c, grad_weight, grad_bias});
    const at::Tensor grad_x = at::empty_like(x, x.options(), kLayout);
    const at::Tensor grad_residual = has_residual ? at::empty_like(x, x.options(), kLayout) : at::Tensor();
    T *to = mutable_values_of<T>(grad_x), *to_residual = mutable_values_of<T>(grad_residual);
    const auto *ka = a.const_data_ptr<float>(), *kb = b.const_data_ptr<float>(), *kc = c.const_data_ptr<float>();
    rows.for_pieces([&](std::int64_t, std::int64_t row, std::int64_t count) {
      const std::int64_t at = row * rows.channels;
      kernel.gradient(xs + at, ys == nullptr ? nullptr : ys + at, gs + at, middle, ka, kb, kc, count, rows.channels,
                      to + at, to_residual == nullptr ? nullptr : to_residual + at);
    });
    call.made({grad_x, grad_residual, grad_weight, grad_bias});
    return {grad_x, grad_residual, grad_weight, grad_bias, {}, {}, {}};
  }
};

bool is_channels_last(const at::Tensor& x) {
  return suits_kernels(x) && x.dim() == 4 && x.numel() > 0 && x.is_contiguous(kLayout);
}

}  // namespace

bool batch_norm_has_fast_path(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight) {
  return is_channels_last(x) && x.size(1) % kernels::kChannelStep == 0 && weight.scalar_type() == at::kFloat &&
         (!residual.defined() ||
          (is_channels_last(residual) && residual.sizes() == x.sizes() && residual.scalar_type() == x.scalar_type()));
}

BatchNormResult batch_norm_fast(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight,
                                const at::Tensor& bias, double epsilon, Activation activation) {
  BatchNormResult result;
  const auto other = residual.defined() ? std::optional<at::Tensor>(residual) : std::nullopt;
  const bool relu = activation == Activation::kRelu;
  result.y = with_type_of(x, [&](auto number) {
    return BatchNormFunction<decltype(number)>::apply(x, other, weight, bias, epsilon, relu, &result.statistics);
  });
  return result;
}

}  // namespace sluice::nn
