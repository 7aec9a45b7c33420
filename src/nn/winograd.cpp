#include "nn/winograd.h"

#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <utility>

#include "nn/kernels/kernels.h"
#include "nn/own_operator.h"
#include "nn/parallel.h"

namespace sluice::nn {
namespace {

using Use = TransformedWeights::Use;

constexpr auto kWinogradLayout = at::MemoryFormat::ChannelsLast;
constexpr std::int64_t kBlockTiles = 96;             // tiles that go through all steps while they are in the cache
constexpr std::int64_t kGradientFloats = 768 << 10;  // the same for the weight gradient, whose blocks ...
constexpr std::int64_t kGradientTiles = 192;         // ... are at least so large, for each passes over the whole sum
constexpr std::int64_t kTransformTiles = 16;         // of these, tiles that one thread transforms at a time
constexpr std::int64_t kTransformPairs = 1024;       // channel pairs whose weights one thread transforms at a time
constexpr std::int64_t kMinimumTiles = 16;           // below, transforming the weights may cost more than is saved

class Scratch {  // planes of [rows, columns]
 public:
  Scratch(std::int64_t rows, std::int64_t columns)
      : memory_(c10::GetCPUAllocator()->allocate(sizeof(float) * kernels::kWinogradPlanes *
                                                 kernels::winograd_plane(rows, columns))) {}
  [[nodiscard]] float* get() const { return static_cast<float*>(memory_.get()); }

 private:
  c10::DataPtr memory_;
};

kernels::WinogradMap map_of(const at::Tensor& x) {
  return {.height = x.size(2), .width = x.size(3), .channels = x.size(1)};
}
std::int64_t tiles_of(const at::Tensor& x) { return x.size(0) * ((x.size(2) + 1) / 2) * ((x.size(3) + 1) / 2); }

// The taps of a [.., .., 3, 3] tensor are one row of nine equally spaced values in both layouts that occur.
bool has_even_taps(const at::Tensor& weight) { return weight.stride(2) == 3 * weight.stride(3); }

kernels::WinogradWeights by_output(const at::Tensor& weight) {  // a row for each output channel
  return {.rows = weight.size(0),
          .columns = weight.size(1),
          .row_stride = weight.stride(0),
          .column_stride = weight.stride(1),
          .tap_stride = weight.stride(3)};
}
kernels::WinogradWeights by_input(const at::Tensor& weight) {
  kernels::WinogradWeights shape = by_output(weight);
  std::swap(shape.rows, shape.columns);
  std::swap(shape.row_stride, shape.column_stride);
  return shape;
}

std::int64_t gradient_tiles(const kernels::WinogradWeights& shape, std::int64_t tiles) {
  const std::int64_t fitting = kGradientFloats / (kernels::kWinogradPlanes * (shape.rows + shape.columns));
  return std::min(std::max(fitting, kGradientTiles), tiles);
}

// body(begin, end) over the rows of a weight, in parallel.
template <typename Body>
void for_rows(const kernels::WinogradWeights& shape, const Body& body) {
  parallel_for(0, shape.rows, std::max<std::int64_t>(kTransformPairs / shape.columns, 1), body);
}

// In planes of [rows, columns].
at::Tensor transform(const at::Tensor& weight, const kernels::WinogradWeights& shape) {
  at::Tensor planes =
      at::empty({kernels::kWinogradPlanes, kernels::winograd_plane(shape.rows, shape.columns)}, at::kFloat);
  const auto* taps = weight.const_data_ptr<float>();
  auto* to = planes.mutable_data_ptr<float>();
  for_rows(shape, [&](std::int64_t begin, std::int64_t end) {
    kernels::best().winograd.weights(shape, taps, begin, end, to);
  });
  return planes;
}

at::Tensor transformed_for(Use use, const at::Tensor& weight, TransformedWeights* kept) {
  kernels::WinogradWeights shape = use == Use::kForward ? by_input(weight) : by_output(weight);
  shape.rotated = use == Use::kInputGradient;
  const auto make = [&] { return transform(weight, shape); };
  return kept != nullptr ? kept->get(weight, use, make) : make();
}

// x convolved with the weight whose planes have a row for each channel of x.
at::Tensor convolved(const at::Tensor& x, const at::Tensor& planes, std::int64_t outputs, const float* bias) {
  const auto& kernel = kernels::best().winograd;
  const auto* u = planes.const_data_ptr<float>();
  at::Tensor y = at::empty({x.size(0), outputs, x.size(2), x.size(3)}, x.options(), kWinogradLayout);
  const kernels::WinogradMap in = map_of(x), out = map_of(y);
  const auto* from = x.const_data_ptr<float>();
  auto* to = y.mutable_data_ptr<float>();
  const std::int64_t tiles = tiles_of(x), blocks = (tiles + kBlockTiles - 1) / kBlockTiles;
  parallel_for(0, blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    const Scratch v(kBlockTiles, in.channels), m(kBlockTiles, out.channels);
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t first = i * kBlockTiles, count = std::min(kBlockTiles, tiles - first);
      const kernels::WinogradBlock block{.first = first, .tiles = count, .begin = 0, .end = count};
      kernel.input(in, block, from, v.get());
      kernel.products(count, in.channels, out.channels, v.get(), u, m.get());
      kernel.output(out, block, m.get(), bias, to);
    }
  });
  return y;
}

// Of one group.
bool is_whole_3x3(const at::Tensor& x, const at::Tensor& weight) {
  return weight.size(1) == x.size(1) && weight.size(2) == 3 && weight.size(3) == 3;
}

}  // namespace

bool winograd_pays(const at::Tensor& x, const at::Tensor& weight, std::int64_t stride, std::int64_t padding) {
  const auto fits = [](std::int64_t channels) { return channels > 0 && channels % kernels::kChannelStep == 0; };
  return x.device().is_cpu() && x.scalar_type() == at::kFloat && weight.scalar_type() == at::kFloat && stride == 1 &&
         padding == 1 && is_whole_3x3(x, weight) && has_even_taps(weight) && fits(weight.size(0)) &&
         fits(weight.size(1)) && tiles_of(x) >= kMinimumTiles;
}

at::Tensor winograd_forward(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                            TransformedWeights* transformed) {
  const at::Tensor offset = bias.has_value() ? bias->contiguous() : at::Tensor(),
                   x_last = x.contiguous(kWinogradLayout);
  OwnOperator call("sluice::winograd_convolution", {x_last, weight, offset});
  at::Tensor y = convolved(x_last, transformed_for(Use::kForward, weight, transformed), weight.size(0),
                           offset.defined() ? offset.const_data_ptr<float>() : nullptr);
  call.made({y});
  return y;
}

at::Tensor winograd_input_gradient(const at::Tensor& grad, const at::Tensor& weight, TransformedWeights* transformed) {
  const at::Tensor grad_last = grad.contiguous(kWinogradLayout);
  OwnOperator call("sluice::winograd_input_gradient", {grad_last, weight});
  at::Tensor grad_x =
      convolved(grad_last, transformed_for(Use::kInputGradient, weight, transformed), weight.size(1), nullptr);
  call.made({grad_x});
  return grad_x;
}

at::Tensor winograd_weight_gradient(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& weight) {
  const auto& kernel = kernels::best().winograd;
  const at::Tensor grad_last = grad.contiguous(kWinogradLayout), x_last = x.contiguous(kWinogradLayout);
  OwnOperator call("sluice::winograd_weight_gradient", {grad_last, x_last});
  const kernels::WinogradMap in = map_of(x), out = map_of(grad);
  const auto *inputs = x_last.const_data_ptr<float>(), *slopes = grad_last.const_data_ptr<float>();
  at::Tensor result = at::empty_like(weight);
  const kernels::WinogradWeights shape = by_output(result);

  const std::int64_t tiles = tiles_of(x), most = gradient_tiles(shape, tiles);
  const Scratch v(most, in.channels), z(most, out.channels), sum(shape.rows, shape.columns);
  for (std::int64_t first = 0; first < tiles; first += most) {
    const std::int64_t count = std::min(most, tiles - first);
    parallel_for(0, count, kTransformTiles, [&](std::int64_t begin, std::int64_t end) {
      const kernels::WinogradBlock block{.first = first, .tiles = count, .begin = begin, .end = end};
      kernel.input_in_panels(in, block, inputs, v.get());
      kernel.output_gradient(out, block, slopes, z.get());
    });
    const std::int64_t pieces = kernels::kWinogradPlanes * kernel.panels(shape.columns);
    parallel_for(0, pieces, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        kernel.weight_products(shape, count, z.get(), v.get(), i, first > 0, sum.get());
      }
    });
  }
  auto* to = result.mutable_data_ptr<float>();
  for_rows(shape,
           [&](std::int64_t begin, std::int64_t end) { kernel.weight_gradient(shape, sum.get(), begin, end, to); });
  call.made({result});
  return result;
}

}  // namespace sluice::nn
