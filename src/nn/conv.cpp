#include "nn/conv.h"

#include <torch/csrc/autograd/custom_function.h>

#include "nn/bfloat16.h"
#include "nn/flops.h"
#include "nn/kernels/kernels.h"
#include "nn/weight_queue.h"
#include "nn/winograd.h"

namespace sluice::nn {
namespace {

constexpr double kSmallDeviation = 0.02;

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Geometry {
  std::int64_t stride, padding;
  int tile = 0;  // side of Winograd's tiles, chosen in the forward pass; 0: no Winograd
};

std::int64_t groups_of(const at::Tensor& x, const at::Tensor& weight) { return x.size(1) / weight.size(1); }

std::optional<at::Tensor> bias_for(const at::Tensor& x, const std::optional<at::Tensor>& bias) {
  return bias.has_value() ? std::optional(bias->to(x.scalar_type())) : bias;
}

struct Wanted {
  bool x, weight, bias;
};

struct Gradients {
  at::Tensor x, weight, bias;
};

Gradients aten_gradients(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& weight,
                         const Geometry& geometry, Wanted wanted) {
  const std::int64_t outputs = weight.size(0);
  auto [grad_x, grad_weight, grad_bias] =
      at::convolution_backward(grad, x, weight, at::OptionalIntArrayRef(outputs), {geometry.stride, geometry.stride},
                               {geometry.padding, geometry.padding}, {1, 1}, false, {0, 0}, groups_of(x, weight),
                               {wanted.x, wanted.weight, wanted.bias});
  return {grad_x, grad_weight, grad_bias};
}

// oneDNN of LibTorch 2.11 computes a wrong weight gradient (AVX2) or writes out of bounds (AVX-512, with several
// threads) for channels_last with fewer channels than a vector has lanes.
bool breaks_onednn(const at::Tensor& x, const at::Tensor& weight, const Geometry& geometry) {
  constexpr std::int64_t kVector = 16;
  return x.is_cpu() && weight.size(2) == 1 && weight.size(3) == 1 && geometry.stride > 1 && geometry.padding == 0 &&
         x.size(1) < kVector;
}

// True if some tap of the kernel reads only padding in this dimension.
bool has_blind_tap(std::int64_t pixels, std::int64_t taps, const Geometry& geometry) {
  const std::int64_t outputs = (pixels + 2 * geometry.padding - taps) / geometry.stride + 1;
  for (std::int64_t tap = 0; tap < taps; ++tap) {
    bool sees = false;
    for (std::int64_t i = 0; i < outputs && !sees; ++i) {
      const std::int64_t pixel = i * geometry.stride + tap - geometry.padding;
      sees = pixel >= 0 && pixel < pixels;
    }
    if (!sees) return true;
  }
  return false;
}

// In bfloat16 with AVX-512, oneDNN skips such taps and leaves old memory content in their gradients.
bool breaks_onednn_in_bf16(const at::Tensor& x, const at::Tensor& weight, const Geometry& geometry) {
  return x.is_cpu() && is_bf16(x) &&
         (has_blind_tap(x.size(2), weight.size(2), geometry) || has_blind_tap(x.size(3), weight.size(3), geometry));
}

// A 1x1 kernel reads only every stride-th pixel, so it equals a stride of 1 on those pixels.
at::Tensor seen_pixels(const at::Tensor& x, std::int64_t stride) {
  return x.slice(2, 0, std::nullopt, stride)
      .slice(3, 0, std::nullopt, stride)
      .contiguous(at::MemoryFormat::ChannelsLast);
}

// Avoids oneDNN for the weight and bias gradients of shapes that it computes wrongly.
Gradients plain_gradients(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& weight,
                          const Geometry& geometry, Wanted wanted) {
  const bool breaks_in_bf16 = wanted.weight && breaks_onednn_in_bf16(x, weight, geometry);
  if (!breaks_in_bf16 && !(wanted.weight && breaks_onednn(x, weight, geometry)))
    return aten_gradients(grad, x, weight, geometry, wanted);
  const Wanted other{.x = false, .weight = true, .bias = wanted.bias};
  Gradients result = breaks_in_bf16 ? aten_gradients(in_float(grad), in_float(x), in_float(weight), geometry, other)
                                    : aten_gradients(grad, seen_pixels(x, geometry.stride), weight,
                                                     {.stride = 1, .padding = 0}, other);
  if (wanted.x) result.x = aten_gradients(grad, x, weight, geometry, {true, false, false}).x;
  return result;
}

Gradients gradients(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& weight, const Geometry& geometry,
                    Wanted wanted, TransformedWeights* transformed) {
  if (geometry.tile == 0) return plain_gradients(grad, x, weight_for(x, weight, transformed), geometry, wanted);
  Gradients result;
  if (wanted.x) result.x = winograd_input_gradient(grad, weight, geometry.tile, transformed);
  if (wanted.weight) result.weight = winograd_weight_gradient(grad, x, weight, geometry.tile);
  if (wanted.bias) result.bias = grad.sum({0, 2, 3}, /*keepdim=*/false, weight.scalar_type());
  return result;
}

// True if oneDNN's bfloat16 convolution in blocked layouts is faster than ATen's choice, channels_last: it takes 0.3 to
// 0.8 of the time (docs/results/performance.md). Measured without AMX.
bool is_small_map(const at::Tensor& x, const at::Tensor& weight, const Geometry& geometry) {
  static const bool is_measured_cpu =
      kernels::supported(kernels::avx512_bf16()) && __builtin_cpu_supports("amx-bf16") == 0;
  constexpr std::int64_t kVector = 16, kInputs = 256, kOutputs = 512, kPixels = 25;
  if (!x.is_cpu() || !is_bf16(x) || !is_measured_cpu) return false;
  const std::int64_t inputs = weight.size(1), outputs = weight.size(0);
  if (inputs != x.size(1) || inputs < kInputs || outputs < kOutputs || (inputs | outputs) % kVector != 0) return false;
  if (weight.size(2) != 3 || weight.size(3) != 3 || geometry.padding != 1) return false;
  return ((x.size(2) - 1) / geometry.stride + 1) * ((x.size(3) - 1) / geometry.stride + 1) <= kPixels;
}

at::Tensor small_map_forward(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                             const Geometry& geometry, TransformedWeights* kept) {
  const std::vector<std::int64_t> padding(2, geometry.padding), stride(2, geometry.stride), dilation(2, 1);
  const auto lay_out = [&] {
    return at::mkldnn_reorder_conv2d_weight(weight.detach().to(at::kBFloat16).to_mkldnn(), padding, stride, dilation);
  };
  const at::Tensor laid_out = kept == nullptr ? lay_out()
                                              : kept->get(weight, TransformedWeights::Use::kBlockedBfloat16,
                                                          static_cast<int>(geometry.stride), lay_out);
  return at::mkldnn_convolution(x, laid_out, bias_for(x, bias), padding, stride, dilation, /*groups=*/1);
}

// In bfloat16, Winograd's algorithm computes only gradients: in forward, rounding the transformed values made the
// gradient's error 1.15 times as large (ResNet-18).
class ConvFunction : public torch::autograd::Function<ConvFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& input, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, std::int64_t stride, std::int64_t padding,
                            WeightGradQueue* queue, TransformedWeights* transformed, Winograd allowed) {
    const at::Tensor x = input.contiguous(at::MemoryFormat::ChannelsLast);
    const int tile = winograd_tile(x, weight, stride, padding, allowed);
    ctx->save_for_backward({x, weight, bias.value_or(at::Tensor())});
    ctx->saved_data["stride"] = stride;
    ctx->saved_data["padding"] = padding;
    ctx->saved_data["queue"] = reinterpret_cast<std::int64_t>(queue);
    ctx->saved_data["transformed"] = reinterpret_cast<std::int64_t>(transformed);
    ctx->saved_data["tile"] = static_cast<std::int64_t>(tile);
    if (tile != 0 && !is_bf16(x)) return winograd_forward(x, weight, bias, tile, transformed);
    const at::Tensor y =
        is_small_map(x, weight, {stride, padding})
            ? small_map_forward(x, weight, bias, {stride, padding}, transformed)
            : at::convolution(x, weight_for(x, weight, transformed), bias_for(x, bias), {stride, stride},
                              {padding, padding}, {1, 1}, false, {0, 0}, groups_of(x, weight));
    return y.contiguous(at::MemoryFormat::ChannelsLast);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &bias = saved[2];
    const Geometry geometry{ctx->saved_data["stride"].toInt(), ctx->saved_data["padding"].toInt(),
                            static_cast<int>(ctx->saved_data["tile"].toInt())};
    auto* queue = reinterpret_cast<WeightGradQueue*>(ctx->saved_data["queue"].toInt());
    auto* transformed = reinterpret_cast<TransformedWeights*>(ctx->saved_data["transformed"].toInt());
    const at::Tensor grad = grads[0].contiguous(at::MemoryFormat::ChannelsLast);

    const bool need_x = ctx->needs_input_grad(0), need_weight = ctx->needs_input_grad(1);
    const bool need_bias = need_weight && bias.defined();
    variable_list result(8);
    if (queue == nullptr || !need_weight) {
      const Gradients all = gradients(grad, x, weight, geometry, {need_x, need_weight, need_bias}, transformed);
      result[0] = all.x, result[1] = all.weight, result[2] = all.bias;
      return result;
    }
    if (need_x) result[0] = gradients(grad, x, weight, geometry, {true, false, false}, transformed).x;
    const at::Tensor own_weight = parameter_of(weight), own_bias = need_bias ? parameter_of(bias) : at::Tensor();
    std::vector<at::Tensor> parameters{own_weight};
    if (need_bias) parameters.push_back(own_bias);
    const at::Tensor input = x.detach();
    const auto work = [grad, input, own_weight, own_bias, geometry, need_bias, transformed] {
      const Gradients own = gradients(grad, input, own_weight, geometry, {false, true, need_bias}, transformed);
      add_to_gradient(own_weight, own.weight);
      if (need_bias) add_to_gradient(own_bias, own.bias);
    };
    queue->push(std::move(parameters), {grad, input}, work);
    return result;
  }
};

Init weight_init(const ConvShape& shape, Conv2d::Bias bias) {
  const std::int64_t area = shape.kernel * shape.kernel;
  switch (bias) {
    case Conv2d::Bias::kTorchDefault: return Init::uniform_fan_in(shape.in / shape.groups * area);
    case Conv2d::Bias::kZeroNormal: return Init::normal(kSmallDeviation);
    case Conv2d::Bias::kNone:
    case Conv2d::Bias::kZero: break;
  }
  return Init::kaiming_fan_out(shape.out * area);
}

Init bias_init(const ConvShape& shape, Conv2d::Bias bias) {
  return bias == Conv2d::Bias::kTorchDefault ? weight_init(shape, bias) : Init::constant(0);
}

}  // namespace

at::Tensor conv2d(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                  std::int64_t stride, std::int64_t padding, WeightGradQueue* queue, TransformedWeights* transformed,
                  Winograd winograd) {
  const at::Tensor y = ConvFunction::apply(x, weight, bias, stride, padding, queue, transformed, winograd);
  const std::int64_t products = weight.numel() / weight.size(0);
  count_product(ProductKind::kConvolution, static_cast<double>(y.numel()) * static_cast<double>(products), x, weight);
  return y;
}

Conv2d::Conv2d(Registry& registry, const std::string& name, const ConvShape& shape, Bias bias)
    : shape_(shape),
      activations_(registry.activations()),
      weight_(&registry.add_parameter(name + ".weight",
                                      {shape.out, shape.in / shape.groups, shape.kernel, shape.kernel},
                                      weight_init(shape, bias), at::MemoryFormat::ChannelsLast)) {
  if (bias == Bias::kNone) return;
  bias_ = &registry.add_parameter(name + ".bias", {shape.out}, bias_init(shape, bias), ParameterRole::kBias);
}

at::Tensor Conv2d::operator()(const at::Tensor& x, const ForwardContext& context) const {
  const auto bias = bias_ == nullptr ? std::nullopt : std::optional<at::Tensor>(bias_->value);
  return conv2d(x.to(activations_), weight_->value, bias, shape_.stride, shape_.padding, context.weight_queue,
                context.transformed_weights, context.numerics.winograd);
}

}  // namespace sluice::nn
