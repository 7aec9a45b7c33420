// Checks shapes and types, allocates memory, and selects the device and stream for the GPU kernels.
#include "nn/cuda/operations.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "core/check.h"
#include "nn/bfloat16.h"
#include "nn/cross_entropy.h"
#include "nn/cuda/launch.h"

namespace sluice::nn::gpu {
namespace {

static_assert(kNoTargetOfRow == kNoTarget);

Number number_of(at::ScalarType type) {
  check(type == at::kFloat || type == at::kBFloat16, "float32 or bfloat16 for GPU kernels");
  return type == at::kBFloat16 ? Number::kBf16 : Number::kFloat;
}

class DeviceScope {
 public:
  explicit DeviceScope(const at::Tensor& tensor) : guard_(tensor.device()) {}
  [[nodiscard]] static cudaStream_t stream() { return c10::cuda::getCurrentCUDAStream().stream(); }

 private:
  c10::cuda::CUDAGuard guard_;
};

const float* floats_of(const at::Tensor& values, const at::Tensor& beside, std::int64_t count) {
  check(values.scalar_type() == at::kFloat && values.is_contiguous() && values.numel() == count &&
            values.device() == beside.device(),
        "contiguous float32 parameters with the width and device of the GPU kernel's input");
  return values.const_data_ptr<float>();
}

const void* numbers_of(const at::Tensor& logits) {
  check(logits.dim() == 2 && logits.is_contiguous(), "contiguous rows of logits");
  return logits.const_data_ptr();
}

const std::int64_t* targets_of(const at::Tensor& targets, const at::Tensor& logits) {
  check(targets.scalar_type() == at::kLong && targets.is_contiguous() && targets.numel() == logits.size(0) &&
            targets.device() == logits.device(),
        "contiguous int64 targets on the device of the logits, one for each row");
  return targets.const_data_ptr<std::int64_t>();
}

Matrix rows_of_last(const at::Tensor& x) { return {x.size(-1) == 0 ? 0 : x.numel() / x.size(-1), x.size(-1)}; }

at::Tensor floats_like(const at::Tensor& x, at::IntArrayRef sizes) {
  return at::empty(sizes, x.options().dtype(at::kFloat).memory_format(at::MemoryFormat::Contiguous));
}

at::Tensor pieces_for(const at::Tensor& x, Matrix shape) {
  return floats_like(x, {pieces_of(shape.rows).count, shape.columns});
}

at::Tensor sum_of_pieces(const at::Tensor& partial, cudaStream_t stream) {
  at::Tensor sums = at::empty({partial.size(1)}, partial.options());
  launch_sum_pieces(partial.const_data_ptr<float>(), {partial.size(0), partial.size(1)}, sums.mutable_data_ptr<float>(),
                    stream);
  return sums;
}

void start_dropout(const at::Tensor& x, at::Tensor& y, const at::Tensor& sample_ids, const MaskNumbers& mask) {
  const std::int64_t samples = y.size(0);
  check(sample_ids.scalar_type() == at::kLong && sample_ids.is_contiguous() && sample_ids.numel() == samples &&
            sample_ids.device() == y.device(),
        "contiguous int64 sample ids on the device of the dropout mask");
  if (y.numel() == 0) return;
  launch_dropout({.x = x.defined() ? x.const_data_ptr() : nullptr,
                  .sample_ids = sample_ids.const_data_ptr<std::int64_t>(),
                  .samples = samples,
                  .count = y.numel() / samples,
                  .mask = mask,
                  .y = y.mutable_data_ptr()},
                 number_of(y.scalar_type()), DeviceScope::stream());
}

}  // namespace

bool has_kernels() { return true; }

// The kernels are compiled for compute capability 8.0 and later (cmake/SluiceCuda.cmake).
bool run_on_device_of(const at::Tensor& x) {
  constexpr int kOldest = 8;
  return x.is_cuda() && at::cuda::getDeviceProperties(x.get_device())->major >= kOldest;
}

bool suits(const at::Tensor& x) { return run_on_device_of(x) && (x.scalar_type() == at::kFloat || is_bf16(x)); }

at::Tensor dropout(const at::Tensor& input, const at::Tensor& sample_ids, const MaskNumbers& mask) {
  const DeviceScope scope(input);
  const at::Tensor x = input.contiguous();
  at::Tensor y = at::empty_like(x);
  start_dropout(x, y, sample_ids, mask);
  return y;
}

at::Tensor dropout_factors(at::IntArrayRef sizes, const at::Tensor& sample_ids, const MaskNumbers& mask) {
  const DeviceScope scope(sample_ids);
  at::Tensor factors = floats_like(sample_ids, sizes);
  start_dropout({}, factors, sample_ids, mask);
  return factors;
}

at::Tensor bias_gelu(const at::Tensor& input, const at::Tensor& bias, GeluForm form) {
  const DeviceScope scope(input);
  const at::Tensor x = input.contiguous();
  at::Tensor y = at::empty_like(x);
  if (x.numel() == 0) return y;
  launch_bias_gelu({.x = x.const_data_ptr(),
                    .bias = floats_of(bias, x, x.size(-1)),
                    .shape = rows_of_last(x),
                    .y = y.mutable_data_ptr()},
                   number_of(x.scalar_type()), form, DeviceScope::stream());
  return y;
}

BiasGeluGradients bias_gelu_backward(const at::Tensor& upper, const at::Tensor& input, const at::Tensor& bias,
                                     GeluForm form, bool wants_bias) {
  const DeviceScope scope(input);
  const at::Tensor x = input.contiguous(), grad = upper.contiguous();
  check(grad.sizes() == x.sizes() && grad.scalar_type() == x.scalar_type(),
        "a gradient with the shape and type of its value");
  BiasGeluGradients result{.x = at::empty_like(x), .bias = {}};
  if (x.numel() == 0) {
    if (wants_bias) result.bias = at::zeros_like(bias);
    return result;
  }
  const Matrix shape = rows_of_last(x);
  const cudaStream_t stream = DeviceScope::stream();
  const at::Tensor partial = wants_bias ? pieces_for(x, shape) : at::Tensor();
  launch_bias_gelu_backward({.x = x.const_data_ptr(),
                             .bias = floats_of(bias, x, x.size(-1)),
                             .grad = grad.const_data_ptr(),
                             .shape = shape,
                             .grad_x = result.x.mutable_data_ptr(),
                             .partial = wants_bias ? partial.mutable_data_ptr<float>() : nullptr},
                            number_of(x.scalar_type()), form, stream);
  if (wants_bias) result.bias = sum_of_pieces(partial, stream);
  return result;
}

LayerNormResult layer_norm(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias, double epsilon,
                           at::ScalarType type) {
  const DeviceScope scope(input);
  const at::Tensor x = input.contiguous();
  const Matrix shape = rows_of_last(x);
  LayerNormResult result{.y = at::empty_like(x, x.options().dtype(type)),
                         .mean = floats_like(x, {shape.rows}),
                         .inverse_deviation = floats_like(x, {shape.rows})};
  if (x.numel() == 0) return result;
  launch_layer_norm({.x = x.const_data_ptr(),
                     .weight = floats_of(weight, x, shape.columns),
                     .bias = floats_of(bias, x, shape.columns),
                     .shape = shape,
                     .epsilon = static_cast<float>(epsilon),
                     .y = result.y.mutable_data_ptr(),
                     .mean = result.mean.mutable_data_ptr<float>(),
                     .inverse = result.inverse_deviation.mutable_data_ptr<float>()},
                    number_of(x.scalar_type()), number_of(type), DeviceScope::stream());
  return result;
}

LayerNormGradients layer_norm_backward(const at::Tensor& upper, const at::Tensor& input, const at::Tensor& weight,
                                       const at::Tensor& mean, const at::Tensor& inverse_deviation,
                                       LayerNormWanted wanted) {
  const DeviceScope scope(input);
  const at::Tensor x = input.contiguous(), grad = upper.contiguous();
  check(grad.sizes() == x.sizes(), "a gradient with the shape of its value");
  const Matrix shape = rows_of_last(x);
  LayerNormGradients result;
  if (wanted.x) result.x = at::empty_like(x);
  if (x.numel() == 0) {
    if (wanted.weight_and_bias) result.weight = result.bias = at::zeros_like(weight);
    return result;
  }
  const at::Tensor of_weight = wanted.weight_and_bias ? pieces_for(x, shape) : at::Tensor();
  const at::Tensor of_bias = wanted.weight_and_bias ? pieces_for(x, shape) : at::Tensor();
  const cudaStream_t stream = DeviceScope::stream();
  launch_layer_norm_backward({.x = x.const_data_ptr(),
                              .grad = grad.const_data_ptr(),
                              .weight = floats_of(weight, x, shape.columns),
                              .mean = floats_of(mean, x, shape.rows),
                              .inverse = floats_of(inverse_deviation, x, shape.rows),
                              .shape = shape,
                              .grad_x = wanted.x ? result.x.mutable_data_ptr() : nullptr,
                              .partial_weight = wanted.weight_and_bias ? of_weight.mutable_data_ptr<float>() : nullptr,
                              .partial_bias = wanted.weight_and_bias ? of_bias.mutable_data_ptr<float>() : nullptr},
                             number_of(x.scalar_type()), number_of(grad.scalar_type()), stream);
  if (wanted.weight_and_bias) {
    result.weight = sum_of_pieces(of_weight, stream);
    result.bias = sum_of_pieces(of_bias, stream);
  }
  return result;
}

RowLosses cross_entropy(const at::Tensor& logits, const at::Tensor& targets, double smoothing) {
  const DeviceScope scope(logits);
  const Matrix shape = rows_of_last(logits);
  RowLosses result{.losses = floats_like(logits, {shape.rows}), .log_sums = floats_like(logits, {shape.rows})};
  if (logits.numel() == 0) return result;
  launch_cross_entropy({.logits = numbers_of(logits),
                        .targets = targets_of(targets, logits),
                        .shape = shape,
                        .smoothing = static_cast<float>(smoothing),
                        .losses = result.losses.mutable_data_ptr<float>(),
                        .log_sums = result.log_sums.mutable_data_ptr<float>()},
                       number_of(logits.scalar_type()), DeviceScope::stream());
  return result;
}

at::Tensor cross_entropy_backward(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& log_sums,
                                  const at::Tensor& factor, double smoothing) {
  const DeviceScope scope(logits);
  const Matrix shape = rows_of_last(logits);
  at::Tensor grad = at::empty_like(logits);
  if (logits.numel() == 0) return grad;
  launch_cross_entropy_backward({.logits = numbers_of(logits),
                                 .targets = targets_of(targets, logits),
                                 .log_sums = floats_of(log_sums, logits, shape.rows),
                                 .factor = floats_of(factor, logits, 1),
                                 .shape = shape,
                                 .smoothing = static_cast<float>(smoothing),
                                 .grad = grad.mutable_data_ptr()},
                                number_of(logits.scalar_type()), DeviceScope::stream());
  return grad;
}

at::Tensor count_hits(const at::Tensor& logits, const at::Tensor& targets) {
  const DeviceScope scope(logits);
  at::Tensor hits = at::zeros({2}, targets.options());
  if (logits.numel() == 0) return hits;
  launch_count_hits({.logits = numbers_of(logits),
                     .targets = targets_of(targets, logits),
                     .shape = rows_of_last(logits),
                     .hits = reinterpret_cast<unsigned long long*>(hits.mutable_data_ptr<std::int64_t>())},
                    number_of(logits.scalar_type()), DeviceScope::stream());
  return hits;
}

void finish_batch_norm(at::Tensor& y, const at::Tensor& residual, const at::Tensor& inverse_deviation, bool relu) {
  const DeviceScope scope(y);
  const bool channels_last = y.is_contiguous(at::MemoryFormat::ChannelsLast);
  const auto layout = channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
  check(y.is_contiguous(layout), "batch normalisation output in contiguous or channels_last memory");
  check(!residual.defined() || (residual.sizes() == y.sizes() && residual.scalar_type() == y.scalar_type() &&
                                residual.is_contiguous(layout)),
        "a residual with the shape, type and layout of the value that it is added to");
  if (y.numel() == 0) return;
  const std::int64_t channels = y.size(1), plane = y.size(2) * y.size(3);
  launch_batch_norm_finish(
      {.residual = residual.defined() ? residual.const_data_ptr() : nullptr,
       .inverse = floats_of(inverse_deviation, y, channels),
       .shape = channels_last ? Matrix{y.size(0) * plane, channels} : Matrix{y.size(0) * channels, plane},
       .channels = channels,
       .channel_is_column = channels_last,
       .relu = relu,
       .y = y.mutable_data_ptr()},
      number_of(y.scalar_type()), DeviceScope::stream());
}

}  // namespace sluice::nn::gpu
