#include "nn/winograd.h"

#include <ATen/Parallel.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <utility>

#include "nn/kernel_data.h"
#include "nn/own_operator.h"
#include "nn/parallel.h"

namespace sluice::nn {
namespace {

using Use = TransformedWeights::Use;

constexpr auto kWinogradLayout = at::MemoryFormat::ChannelsLast;
using kernels::Operand;

template <typename T>
using Kernels = kernels::WinogradKernels<T>;

constexpr std::int64_t kBlockTiles2x2 = 96;            // tiles whose planes stay in the cache through all steps
constexpr std::int64_t kBlockTiles4x4 = 64;            // the same for 36 planes
constexpr std::int64_t kLeastBlockTiles = 24;          // below, reading the weights takes longer than multiplying
constexpr std::int64_t kGradientOperands = 768 << 10;  // operands of a weight-gradient block that stay in the cache
constexpr std::int64_t kGradientTiles = 192;  // minimum of tiles in such a block: each block passes over the whole sum
constexpr std::int64_t kTransformTiles = 16;  // tiles of a weight-gradient block that a thread transforms at once
constexpr std::int64_t kTransformPairs = 1024;  // channel pairs whose weights a thread transforms at once
constexpr std::int64_t kMinimumTiles = 16;      // of 2x2; below, transforming the weights may cost more than is saved
// Cost of transforming a weight, in tiles whose products take as long (512 channels: 30 to 45).
constexpr std::int64_t kTransformAsTiles = 32;

template <typename T>
const Kernels<T>& kernels_for(int tile) {
  const kernels::Table& table = kernels::best();
  return (tile == 4 ? table.winograd_4x4 : table.winograd_2x2).template of<T>();
}

template <typename Value>
class Scratch {
 public:
  Scratch(std::int64_t planes, std::int64_t rows, std::int64_t columns)
      : memory_(c10::GetCPUAllocator()->allocate(sizeof(Value) * planes * kernels::winograd_plane(rows, columns))) {}
  [[nodiscard]] Value* get() const { return static_cast<Value*>(memory_.get()); }

 private:
  c10::DataPtr memory_;
};

kernels::WinogradMap map_of(const at::Tensor& x) {
  return {.height = x.size(2), .width = x.size(3), .channels = x.size(1)};
}
std::int64_t count_tiles(std::int64_t images, std::int64_t height, std::int64_t width, std::int64_t side) {
  return images * ((height + side - 1) / side) * ((width + side - 1) / side);
}
std::int64_t tiles_of(const at::Tensor& x, std::int64_t side) {
  return count_tiles(x.size(0), x.size(2), x.size(3), side);
}

// Tiles that a thread takes through all steps at once, chosen so that all threads get the same number of blocks.
std::int64_t block_tiles(std::int64_t side, std::int64_t tiles) {
  const std::int64_t most = side == 4 ? kBlockTiles4x4 : kBlockTiles2x2, threads = at::get_num_threads();
  const std::int64_t rounds = (tiles + most * threads - 1) / (most * threads);
  return std::max((tiles + rounds * threads - 1) / (rounds * threads), kLeastBlockTiles);
}

// True if the nine taps of a [.., .., 3, 3] tensor are equally spaced, as in both layouts that occur.
bool has_even_taps(const at::Tensor& weight) { return weight.stride(2) == 3 * weight.stride(3); }

kernels::WinogradWeights by_output(const at::Tensor& weight) {
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

template <typename T>
std::int64_t gradient_tiles(const Kernels<T>& kernel, const kernels::WinogradWeights& shape, std::int64_t tiles) {
  constexpr std::int64_t kDeep = kernels::kDepth<T>;
  const std::int64_t fitting = kGradientOperands / (kernel.planes * (shape.rows + shape.columns)) * kDeep;
  return std::min(std::max(fitting, kGradientTiles), (tiles + kDeep - 1) / kDeep * kDeep);
}

constexpr std::int64_t kRowsAtATime = 2;

template <typename Body>
void for_rows(const kernels::WinogradWeights& shape, const Body& body) {
  parallel_for(0, shape.rows / kRowsAtATime,
               std::max<std::int64_t>(kTransformPairs / (kRowsAtATime * shape.columns), 1),
               [&](std::int64_t begin, std::int64_t end) { body(begin * kRowsAtATime, end * kRowsAtATime); });
}

template <typename T>
at::Tensor transform(const Kernels<T>& kernel, const at::Tensor& weight, const kernels::WinogradWeights& shape) {
  constexpr std::int64_t kDeep = kernels::kDepth<T>;
  const std::int64_t plane = kernels::winograd_plane(shape.rows / kDeep, shape.columns);
  at::Tensor planes = at::empty({kernel.planes, plane * kDeep}, kDeep == 1 ? at::kFloat : at::kBFloat16);
  const auto* taps = weight.const_data_ptr<float>();
  auto* to = mutable_values_of<Operand<T>>(planes);
  for_rows(shape, [&](std::int64_t begin, std::int64_t end) { kernel.weights(shape, taps, begin, end, to); });
  return planes;
}

template <typename T>
at::Tensor transformed_for(Use use, const at::Tensor& weight, int tile, TransformedWeights* kept) {
  kernels::WinogradWeights shape = use == Use::kForward ? by_input(weight) : by_output(weight);
  shape.rotated = use == Use::kInputGradient;
  const auto make = [&] { return transform(kernels_for<T>(tile), weight, shape); };
  return kept != nullptr ? kept->get(weight, use, tile, make) : make();
}

template <typename T>
at::Tensor convolved(const Kernels<T>& kernel, const at::Tensor& x, const at::Tensor& planes, std::int64_t outputs,
                     const float* bias) {
  const auto* u = values_of<Operand<T>>(planes);
  at::Tensor y = at::empty({x.size(0), outputs, x.size(2), x.size(3)}, x.options(), kWinogradLayout);
  const kernels::WinogradMap in = map_of(x), out = map_of(y);
  const T* from = values_of<T>(x);
  T* to = mutable_values_of<T>(y);
  const std::int64_t tiles = tiles_of(x, kernel.outputs), most = block_tiles(kernel.outputs, tiles);
  parallel_for(0, (tiles + most - 1) / most, 1, [&](std::int64_t begin, std::int64_t end) {
    const Scratch<Operand<T>> v(kernel.planes, most, in.channels / kernels::kDepth<T>);
    const Scratch<float> m(kernel.planes, most, out.channels);
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

template <typename T>
void add_up_weight_gradient(const at::Tensor& grad, const at::Tensor& x, int tile, const at::Tensor& result) {
  const Kernels<T>& kernel = kernels_for<T>(tile);
  const kernels::WinogradMap in = map_of(x), out = map_of(grad);
  const T *inputs = values_of<T>(x), *slopes = values_of<T>(grad);
  const kernels::WinogradWeights shape = by_output(result);

  const std::int64_t tiles = tiles_of(x, kernel.outputs), most = gradient_tiles(kernel, shape, tiles);
  const std::int64_t operands = most / kernels::kDepth<T>;
  const Scratch<Operand<T>> v(kernel.planes, operands, in.channels), z(kernel.planes, operands, out.channels);
  const Scratch<float> sum(kernel.planes, shape.rows, shape.columns);
  for (std::int64_t first = 0; first < tiles; first += most) {
    const std::int64_t count = std::min(most, tiles - first), groups = (count + kTransformTiles - 1) / kTransformTiles;
    parallel_for(0, groups, 1, [&](std::int64_t begin, std::int64_t end) {
      const kernels::WinogradBlock block{.first = first,
                                         .tiles = count,
                                         .begin = begin * kTransformTiles,
                                         .end = std::min(end * kTransformTiles, count)};
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
}

std::int64_t work_of(std::int64_t tiles, std::int64_t side) {
  return (tiles + kTransformAsTiles) * (side + 2) * (side + 2);
}

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
  const bool all_fits = suits_kernels(x) && weight.scalar_type() == at::kFloat && stride == 1 && padding == 1 &&
                        is_whole_3x3(x, weight) && has_even_taps(weight) && fits(weight.size(0)) &&
                        fits(weight.size(1));
  return all_fits ? winograd_tile(x.size(0), x.size(2), x.size(3), allowed) : 0;
}

at::Tensor winograd_forward(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                            int tile, TransformedWeights* transformed) {
  const at::Tensor offset = bias.has_value() ? bias->contiguous() : at::Tensor(),
                   x_last = x.contiguous(kWinogradLayout);
  OwnOperator call("sluice::winograd_convolution", {x_last, weight, offset});
  at::Tensor y =
      convolved(kernels_for<float>(tile), x_last, transformed_for<float>(Use::kForward, weight, tile, transformed),
                weight.size(0), offset.defined() ? offset.const_data_ptr<float>() : nullptr);
  call.made({y});
  return y;
}

at::Tensor winograd_input_gradient(const at::Tensor& grad, const at::Tensor& weight, int tile,
                                   TransformedWeights* transformed) {
  const at::Tensor grad_last = grad.contiguous(kWinogradLayout);
  OwnOperator call("sluice::winograd_input_gradient", {grad_last, weight});
  at::Tensor grad_x = with_type_of(grad_last, [&](auto number) {
    using T = decltype(number);
    const at::Tensor planes = transformed_for<T>(Use::kInputGradient, weight, tile, transformed);
    return convolved(kernels_for<T>(tile), grad_last, planes, weight.size(1), nullptr);
  });
  call.made({grad_x});
  return grad_x;
}

at::Tensor winograd_weight_gradient(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& weight, int tile) {
  const at::Tensor grad_last = grad.contiguous(kWinogradLayout), x_last = x.contiguous(kWinogradLayout);
  OwnOperator call("sluice::winograd_weight_gradient", {grad_last, x_last});
  at::Tensor result = at::empty_like(weight);
  with_type_of(x_last, [&](auto number) { add_up_weight_gradient<decltype(number)>(grad_last, x_last, tile, result); });
  call.made({result});
  return result;
}

}  // namespace sluice::nn
