#include "nn/winograd.h"

#include <ATen/Parallel.h>
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
using Kernels = kernels::WinogradKernels;

constexpr std::int64_t kBlockTiles2x2 = 96;          // tiles that go through all steps while they are in the cache
constexpr std::int64_t kBlockTiles4x4 = 64;          // of more, 36 planes are not
constexpr std::int64_t kLeastBlockTiles = 24;        // below, reading the weights takes longer than multiplying
constexpr std::int64_t kGradientFloats = 768 << 10;  // the same for the weight gradient, whose blocks ...
constexpr std::int64_t kGradientTiles = 192;         // ... are at least so large, for each passes over the whole sum
constexpr std::int64_t kTransformTiles = 16;         // of these, tiles that one thread transforms at a time
constexpr std::int64_t kTransformPairs = 1024;       // channel pairs whose weights one thread transforms at a time
constexpr std::int64_t kMinimumTiles = 16;  // of 2x2; below, transforming the weights may cost more than is saved
// What transforming a weight takes, as tiles that its product takes as long for (512 channels: 30 to 45).
constexpr std::int64_t kTransformAsTiles = 32;

const Kernels& kernels_for(int tile) { return tile == 4 ? kernels::best().winograd_4x4 : kernels::best().winograd_2x2; }

class Scratch {  // planes of [rows, columns]
 public:
  Scratch(const Kernels& kernel, std::int64_t rows, std::int64_t columns)
      : memory_(
            c10::GetCPUAllocator()->allocate(sizeof(float) * kernel.planes * kernels::winograd_plane(rows, columns))) {}
  [[nodiscard]] float* get() const { return static_cast<float*>(memory_.get()); }

 private:
  c10::DataPtr memory_;
};

kernels::WinogradMap map_of(const at::Tensor& x) {
  return {.height = x.size(2), .width = x.size(3), .channels = x.size(1)};
}
std::int64_t count_tiles(std::int64_t images, std::int64_t height, std::int64_t width, std::int64_t side) {
  return images * ((height + side - 1) / side) * ((width + side - 1) / side);
}
std::int64_t tiles_of(const at::Tensor& x, const Kernels& kernel) {
  return count_tiles(x.size(0), x.size(2), x.size(3), kernel.outputs);
}

// Tiles that a thread takes through all steps at a time: all threads get as many blocks.
std::int64_t block_tiles(const Kernels& kernel, std::int64_t tiles) {
  const std::int64_t most = kernel.outputs == 4 ? kBlockTiles4x4 : kBlockTiles2x2, threads = at::get_num_threads();
  const std::int64_t rounds = (tiles + most * threads - 1) / (most * threads);
  return std::max((tiles + rounds * threads - 1) / (rounds * threads), kLeastBlockTiles);
}

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

std::int64_t gradient_tiles(const Kernels& kernel, const kernels::WinogradWeights& shape, std::int64_t tiles) {
  const std::int64_t fitting = kGradientFloats / (kernel.planes * (shape.rows + shape.columns));
  return std::min(std::max(fitting, kGradientTiles), tiles);
}

// body(begin, end) over the rows of a weight, in parallel.
template <typename Body>
void for_rows(const kernels::WinogradWeights& shape, const Body& body) {
  parallel_for(0, shape.rows, std::max<std::int64_t>(kTransformPairs / shape.columns, 1), body);
}

// In planes of [rows, columns].
at::Tensor transform(const Kernels& kernel, const at::Tensor& weight, const kernels::WinogradWeights& shape) {
  at::Tensor planes = at::empty({kernel.planes, kernels::winograd_plane(shape.rows, shape.columns)}, at::kFloat);
  const auto* taps = weight.const_data_ptr<float>();
  auto* to = planes.mutable_data_ptr<float>();
  for_rows(shape, [&](std::int64_t begin, std::int64_t end) { kernel.weights(shape, taps, begin, end, to); });
  return planes;
}

at::Tensor transformed_for(Use use, const at::Tensor& weight, int tile, TransformedWeights* kept) {
  kernels::WinogradWeights shape = use == Use::kForward ? by_input(weight) : by_output(weight);
  shape.rotated = use == Use::kInputGradient;
  const auto make = [&] { return transform(kernels_for(tile), weight, shape); };
  return kept != nullptr ? kept->get(weight, use, tile, make) : make();
}

// x convolved with the weight whose planes have a row for each channel of x.
at::Tensor convolved(const Kernels& kernel, const at::Tensor& x, const at::Tensor& planes, std::int64_t outputs,
                     const float* bias) {
  const auto* u = planes.const_data_ptr<float>();
  at::Tensor y = at::empty({x.size(0), outputs, x.size(2), x.size(3)}, x.options(), kWinogradLayout);
  const kernels::WinogradMap in = map_of(x), out = map_of(y);
  const auto* from = x.const_data_ptr<float>();
  auto* to = y.mutable_data_ptr<float>();
  const std::int64_t tiles = tiles_of(x, kernel), most = block_tiles(kernel, tiles);
  parallel_for(0, (tiles + most - 1) / most, 1, [&](std::int64_t begin, std::int64_t end) {
    const Scratch v(kernel, most, in.channels), m(kernel, most, out.channels);
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t first = i * most, count = std::min(most, tiles - first);
      const kernels::WinogradBlock block{.first = first, .tiles = count, .begin = 0, .end = count};
      kernel.input(in, block, from, v.get());
      kernel.products(count, in.channels, out.channels, v.get(), u, m.get());
      kernel.output(out, block, m.get(), bias, to);
    }
  });
  return y;
}

// Products of one channel pair, and what transforming its weight takes.
std::int64_t work_of(std::int64_t tiles, std::int64_t side) {
  return (tiles + kTransformAsTiles) * (side + 2) * (side + 2);
}

// Of one group.
bool is_whole_3x3(const at::Tensor& x, const at::Tensor& weight) {
  return weight.size(1) == x.size(1) && weight.size(2) == 3 && weight.size(3) == 3;
}

}  // namespace

int winograd_tile(std::int64_t images, std::int64_t height, std::int64_t width, Winograd allowed) {
  const std::int64_t small = count_tiles(images, height, width, 2), large = count_tiles(images, height, width, 4);
  if (allowed == Winograd::kNone || small < kMinimumTiles) return 0;
  return allowed == Winograd::k4x4 && work_of(large, 4) < work_of(small, 2) ? 4 : 2;
}

int winograd_tile(const at::Tensor& x, const at::Tensor& weight, std::int64_t stride, std::int64_t padding,
                  Winograd allowed) {
  const auto fits = [](std::int64_t channels) { return channels > 0 && channels % kernels::kChannelStep == 0; };
  const bool all_fits = x.device().is_cpu() && x.scalar_type() == at::kFloat && weight.scalar_type() == at::kFloat &&
                        stride == 1 && padding == 1 && is_whole_3x3(x, weight) && has_even_taps(weight) &&
                        fits(weight.size(0)) && fits(weight.size(1));
  return all_fits ? winograd_tile(x.size(0), x.size(2), x.size(3), allowed) : 0;
}

at::Tensor winograd_forward(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                            int tile, TransformedWeights* transformed) {
  const at::Tensor offset = bias.has_value() ? bias->contiguous() : at::Tensor(),
                   x_last = x.contiguous(kWinogradLayout);
  OwnOperator call("sluice::winograd_convolution", {x_last, weight, offset});
  at::Tensor y = convolved(kernels_for(tile), x_last, transformed_for(Use::kForward, weight, tile, transformed),
                           weight.size(0), offset.defined() ? offset.const_data_ptr<float>() : nullptr);
  call.made({y});
  return y;
}

at::Tensor winograd_input_gradient(const at::Tensor& grad, const at::Tensor& weight, int tile,
                                   TransformedWeights* transformed) {
  const at::Tensor grad_last = grad.contiguous(kWinogradLayout);
  OwnOperator call("sluice::winograd_input_gradient", {grad_last, weight});
  at::Tensor grad_x =
      convolved(kernels_for(tile), grad_last, transformed_for(Use::kInputGradient, weight, tile, transformed),
                weight.size(1), nullptr);
  call.made({grad_x});
  return grad_x;
}

at::Tensor winograd_weight_gradient(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& weight, int tile) {
  const Kernels& kernel = kernels_for(tile);
  const at::Tensor grad_last = grad.contiguous(kWinogradLayout), x_last = x.contiguous(kWinogradLayout);
  OwnOperator call("sluice::winograd_weight_gradient", {grad_last, x_last});
  const kernels::WinogradMap in = map_of(x), out = map_of(grad);
  const auto *inputs = x_last.const_data_ptr<float>(), *slopes = grad_last.const_data_ptr<float>();
  at::Tensor result = at::empty_like(weight);
  const kernels::WinogradWeights shape = by_output(result);

  const std::int64_t tiles = tiles_of(x, kernel), most = gradient_tiles(kernel, shape, tiles);
  const Scratch v(kernel, most, in.channels), z(kernel, most, out.channels), sum(kernel, shape.rows, shape.columns);
  for (std::int64_t first = 0; first < tiles; first += most) {
    const std::int64_t count = std::min(most, tiles - first);
    parallel_for(0, count, kTransformTiles, [&](std::int64_t begin, std::int64_t end) {
      const kernels::WinogradBlock block{.first = first, .tiles = count, .begin = begin, .end = end};
      kernel.input_in_panels(in, block, inputs, v.get());
      kernel.output_gradient(out, block, slopes, z.get());
    });
    const std::int64_t pieces = kernel.planes * kernel.panels(shape.columns);
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
