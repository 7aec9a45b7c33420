#include "nn/cuda/grid.cuh"
#include "nn/cuda/row_kernels.h"

namespace sluice::nn::gpu {
namespace {

template <typename In, typename Out, int kRun, int kWarps>
__global__ void layer_norm_kernel(LayerNormArguments arguments) {
  const std::int64_t row = row_of_group();
  if (row < arguments.shape.rows) layer_norm_row<In, Out, kRun>(LaneGroup<kWarps>(), arguments, row);
}

template <typename In, typename Out, int kRun, int kWarps>
__global__ void layer_norm_gradient_kernel(LayerNormBackwardArguments arguments) {
  const std::int64_t row = row_of_group();
  if (row < arguments.shape.rows) layer_norm_gradient_row<In, Out, kRun>(LaneGroup<kWarps>(), arguments, row);
}

template <typename In, typename Out, int kRun>
__global__ void layer_norm_columns_kernel(LayerNormBackwardArguments arguments, Pieces pieces) {
  const std::int64_t column = column_of_thread<kRun>(), columns = arguments.shape.columns;
  const auto* x = static_cast<const In*>(arguments.x);
  const auto* grad = static_cast<const Out*>(arguments.grad);
  float of_weight[kRun] = {}, of_bias[kRun] = {};
  if (column < columns) {
    for_rows_of_piece(arguments.shape.rows, pieces, [&](std::int64_t row) {
      float values[kRun], upper[kRun];
      read_run(x + row * columns + column, values);
      read_run(grad + row * columns + column, upper);
      const float mean = arguments.mean[row], inverse = arguments.inverse[row];
      for (int j = 0; j < kRun; ++j) {
        of_weight[j] += upper[j] * ((values[j] - mean) * inverse);
        of_bias[j] += upper[j];
      }
    });
  }
  store_piece(of_weight, column, columns, arguments.partial_weight);
  store_piece(of_bias, column, columns, arguments.partial_bias);
}

__global__ void sum_pieces_kernel(const float* partial, Matrix shape, float* sums) {
  __shared__ float of_lanes[kPieceLanes][kWarp];
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kWarp + threadIdx.x;
  float sum = 0;
  if (column < shape.columns) {
    for (std::int64_t piece = threadIdx.y; piece < shape.rows; piece += kPieceLanes)
      sum += partial[piece * shape.columns + column];
  }
  of_lanes[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || column >= shape.columns) return;
  float total = 0;
  for (int lane = 0; lane < kPieceLanes; ++lane) total += of_lanes[lane][threadIdx.x];
  sums[column] = total;
}

template <typename Body>
void with_numbers(Number in, Number out, const Body& body) {
  with_number(in, [&](auto of_in) { with_number(out, [&](auto of_out) { body(of_in, of_out); }); });
}

template <typename In, typename Out, int kRun>
void launch_gradient_of_x(const LayerNormBackwardArguments& arguments, cudaStream_t stream) {
  with_warps(arguments.shape.columns, [&](auto warps) {
    constexpr int kWarps = decltype(warps)::value;
    const RowGrid grid = row_grid<kWarps>(arguments.shape.rows);
    start(layer_norm_gradient_kernel<In, Out, kRun, kWarps>, grid.blocks, grid.threads, stream, arguments);
  });
}

template <typename In, typename Out, int kRun>
void launch_columns(const LayerNormBackwardArguments& arguments, cudaStream_t stream) {
  const ColumnGrid grid = grid_for_sums<kRun>(arguments.shape);
  start(layer_norm_columns_kernel<In, Out, kRun>, grid.blocks, grid.threads, stream, arguments, grid.pieces);
}

}  // namespace

void launch_layer_norm(const LayerNormArguments& arguments, Number of_x, Number of_y, cudaStream_t stream) {
  with_numbers(of_x, of_y, [&](auto in, auto out) {
    using In = decltype(in);
    using Out = decltype(out);
    with_run(arguments.shape.columns, aligned<In>(arguments.x) && aligned<Out>(arguments.y), [&](auto run) {
      with_warps(arguments.shape.columns, [&](auto warps) {
        constexpr int kRun = decltype(run)::value, kWarps = decltype(warps)::value;
        const RowGrid grid = row_grid<kWarps>(arguments.shape.rows);
        start(layer_norm_kernel<In, Out, kRun, kWarps>, grid.blocks, grid.threads, stream, arguments);
      });
    });
  });
}

void launch_layer_norm_backward(const LayerNormBackwardArguments& arguments, Number of_x, Number of_grad,
                                cudaStream_t stream) {
  with_numbers(of_x, of_grad, [&](auto in, auto out) {
    using In = decltype(in);
    using Out = decltype(out);
    const bool all_aligned = aligned<In>(arguments.x) && aligned<Out>(arguments.grad) && aligned<In>(arguments.grad_x);
    with_run(arguments.shape.columns, all_aligned, [&](auto run) {
      constexpr int kRun = decltype(run)::value;
      if (arguments.grad_x != nullptr) launch_gradient_of_x<In, Out, kRun>(arguments, stream);
      if (arguments.partial_weight != nullptr) launch_columns<In, Out, kRun>(arguments, stream);
    });
  });
}

void launch_sum_pieces(const float* partial, Matrix shape, float* sums, cudaStream_t stream) {
  const unsigned int blocks = blocks_along_x(blocks_for(shape.columns, kWarp));
  start(sum_pieces_kernel, blocks, dim3(kWarp, kPieceLanes), stream, partial, shape, sums);
}

}  // namespace sluice::nn::gpu
