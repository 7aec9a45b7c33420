#include "nn/cuda/grid.cuh"

namespace sluice::nn::gpu {
namespace {

template <typename T, typename Gelu, int kRun>
__global__ void bias_gelu_kernel(BiasGeluArguments arguments, Pieces pieces) {
  const std::int64_t column = column_of_thread<kRun>(), columns = arguments.shape.columns;
  if (column >= columns) return;
  const auto* x = static_cast<const T*>(arguments.x);
  auto* y = static_cast<T*>(arguments.y);
  float bias[kRun];
  read_parameters(arguments.bias + column, bias);
  for_rows_of_piece(arguments.shape.rows, pieces, [&](std::int64_t row) {
    float values[kRun];
    read_run(x + row * columns + column, values);
    for (int j = 0; j < kRun; ++j) values[j] = Gelu::value(values[j] + bias[j]);
    write_run(values, y + row * columns + column);
  });
}

template <typename T, typename Gelu, int kRun>
__global__ void bias_gelu_backward_kernel(BiasGeluBackwardArguments arguments, Pieces pieces) {
  const std::int64_t column = column_of_thread<kRun>(), columns = arguments.shape.columns;
  const auto *x = static_cast<const T*>(arguments.x), *grad = static_cast<const T*>(arguments.grad);
  auto* grad_x = static_cast<T*>(arguments.grad_x);
  float sums[kRun] = {};
  if (column < columns) {
    float bias[kRun];
    read_parameters(arguments.bias + column, bias);
    for_rows_of_piece(arguments.shape.rows, pieces, [&](std::int64_t row) {
      float values[kRun], upper[kRun];
      read_run(x + row * columns + column, values);
      read_run(grad + row * columns + column, upper);
      for (int j = 0; j < kRun; ++j) {
        values[j] = upper[j] * Gelu::slope(values[j] + bias[j]);
        sums[j] += values[j];
      }
      write_run(values, grad_x + row * columns + column);
    });
  }
  if (arguments.partial != nullptr) store_piece(sums, column, columns, arguments.partial);
}

template <typename Body>
void with_form(GeluForm form, const Body& body) {
  if (form == GeluForm::kTanh) {
    body(TanhGelu{});
  } else {
    body(ExactGelu{});
  }
}

}  // namespace

void launch_bias_gelu(const BiasGeluArguments& arguments, Number type, GeluForm form, cudaStream_t stream) {
  with_number(type, [&](auto number) {
    using T = decltype(number);
    const bool all_aligned = aligned<T>(arguments.x) && aligned<T>(arguments.y);
    with_form(form, [&](auto gelu) {
      with_run(arguments.shape.columns, all_aligned, [&](auto run) {
        constexpr int kRun = decltype(run)::value;
        const ColumnGrid grid = grid_for_each<kRun>(arguments.shape);
        start(bias_gelu_kernel<T, decltype(gelu), kRun>, grid.blocks, grid.threads, stream, arguments, grid.pieces);
      });
    });
  });
}

void launch_bias_gelu_backward(const BiasGeluBackwardArguments& arguments, Number type, GeluForm form,
                               cudaStream_t stream) {
  with_number(type, [&](auto number) {
    using T = decltype(number);
    const bool all_aligned = aligned<T>(arguments.x) && aligned<T>(arguments.grad) && aligned<T>(arguments.grad_x);
    with_form(form, [&](auto gelu) {
      with_run(arguments.shape.columns, all_aligned, [&](auto run) {
        constexpr int kRun = decltype(run)::value;
        const ColumnGrid grid = grid_for_sums<kRun>(arguments.shape);
        start(bias_gelu_backward_kernel<T, decltype(gelu), kRun>, grid.blocks, grid.threads, stream, arguments,
              grid.pieces);
      });
    });
  });
}

}  // namespace sluice::nn::gpu
