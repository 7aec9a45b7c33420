#include "nn/cuda/grid.cuh"

namespace sluice::nn::gpu {
namespace {

template <typename T, int kRun>
__global__ void batch_norm_finish_kernel(BatchNormFinishArguments arguments, Pieces pieces) {
  const std::int64_t column = column_of_thread<kRun>(), columns = arguments.shape.columns;
  if (column >= columns) return;
  const auto* residual = static_cast<const T*>(arguments.residual);
  auto* y = static_cast<T*>(arguments.y);
  float nothing[kRun] = {};  // 0, or NaN if the variance is infinite
  const auto nothing_of = [&](std::int64_t channel) { return arguments.inverse[channel] > 0 ? 0.0F : ::nanf(""); };
  if (arguments.channel_is_column) {
    for (int j = 0; j < kRun; ++j) nothing[j] = nothing_of(column + j);
  }
  for_rows_of_piece(arguments.shape.rows, pieces, [&](std::int64_t row) {
    if (!arguments.channel_is_column) {
      const float of_row = nothing_of(row % arguments.channels);
      for (int j = 0; j < kRun; ++j) nothing[j] = of_row;
    }
    float values[kRun];
    read_run(y + row * columns + column, values);
    if (residual != nullptr) {
      float added[kRun];
      read_run(residual + row * columns + column, added);
      for (int j = 0; j < kRun; ++j) values[j] += added[j];
    }
    for (int j = 0; j < kRun; ++j) {
      values[j] += nothing[j];
      if (arguments.relu && values[j] < 0) values[j] = 0;
    }
    write_run(values, y + row * columns + column);
  });
}

}  // namespace

void launch_batch_norm_finish(const BatchNormFinishArguments& arguments, Number type, cudaStream_t stream) {
  with_number(type, [&](auto number) {
    using T = decltype(number);
    const bool all_aligned = aligned<T>(arguments.residual) && aligned<T>(arguments.y);
    with_run(arguments.shape.columns, all_aligned, [&](auto run) {
      constexpr int kRun = decltype(run)::value;
      const ColumnGrid grid = grid_for_each<kRun>(arguments.shape);
      start(batch_norm_finish_kernel<T, kRun>, grid.blocks, grid.threads, stream, arguments, grid.pieces);
    });
  });
}

}  // namespace sluice::nn::gpu
