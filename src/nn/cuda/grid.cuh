// grid: maps the matrices of launch.h to blocks and threads, and adds up within them. For .cu files only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <type_traits>

#include "nn/cuda/launch.h"
#include "nn/cuda/number.h"
#include "nn/cuda/start.cuh"

namespace sluice::nn::gpu {

constexpr int kRunLength = 4;  // numbers that a thread reads at once, if shape and alignment allow it
constexpr std::int64_t kMostBlocks = (std::int64_t{1} << 31) - 1;
constexpr std::int64_t kMostBlocksAlongY = 65'535;

template <typename T>
bool aligned(const void* memory) {
  return reinterpret_cast<std::uintptr_t>(memory) % (sizeof(T) * kRunLength) == 0;
}

template <typename Body>
void with_number(Number type, const Body& body) {
  if (type == Number::kBf16) {
    body(Bf16{});
  } else {
    body(float{});
  }
}

// Calls body(std::integral_constant<int, kRun>{}) with the longest run that rows of `columns` numbers allow.
template <typename Body>
void with_run(std::int64_t columns, bool is_aligned, const Body& body) {
  if (columns % kRunLength == 0 && is_aligned) {
    body(std::integral_constant<int, kRunLength>{});
  } else {
    body(std::integral_constant<int, 1>{});
  }
}

inline std::int64_t blocks_for(std::int64_t items, std::int64_t of_block) { return (items + of_block - 1) / of_block; }

inline unsigned int blocks_along_x(std::int64_t blocks) {
  if (blocks < 1 || blocks > kMostBlocks) throw std::length_error("a tensor is too large for a GPU kernel's grid");
  return static_cast<unsigned int>(blocks);
}

// Threads own columns. A block is threads.x runs of columns wide, threads.y rows high, and processes one piece of rows.
struct ColumnGrid {
  dim3 blocks, threads;
  Pieces pieces;
};
inline ColumnGrid column_grid(std::int64_t columns, int run, int lanes, Pieces pieces) {
  return {dim3(blocks_along_x(blocks_for(columns, std::int64_t{lanes} * run)), static_cast<unsigned int>(pieces.count)),
          dim3(static_cast<unsigned int>(lanes), static_cast<unsigned int>(kWarp * kPieceLanes / lanes)), pieces};
}

// Grid for sums over rows; every piece stores its partial sum.
template <int kRun>
ColumnGrid grid_for_sums(Matrix shape) {
  return column_grid(shape.columns, kRun, kWarp, pieces_of(shape.rows));
}

// Grid for work without sums: as many blocks as useful, no wider than the rows.
template <int kRun>
ColumnGrid grid_for_each(Matrix shape) {
  constexpr std::int64_t kRowsOfThread = 4;
  int lanes = kWarp;
  while (lanes > 1 && std::int64_t{lanes / 2} * kRun >= shape.columns) lanes /= 2;
  const std::int64_t height = std::int64_t{kWarp * kPieceLanes / lanes} * kRowsOfThread;
  const std::int64_t rows = std::max(height, blocks_for(shape.rows, kMostBlocksAlongY));
  return column_grid(shape.columns, kRun, lanes, {rows, blocks_for(shape.rows, rows)});
}

template <int kRun>
__device__ std::int64_t column_of_thread() {
  return (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kRun;
}

template <typename Body>
__device__ void for_rows_of_piece(std::int64_t rows, Pieces pieces, const Body& body) {
  const std::int64_t first = pieces.rows * blockIdx.y;
  const std::int64_t end = min(first + pieces.rows, rows);
  for (std::int64_t row = first + threadIdx.y; row < end; row += blockDim.y) body(row);
}

// Adds up the block's lanes in order and stores the sums of columns [column, column + kRun) of one piece of a
// grid_for_sums(). All threads must call it.
template <int kRun>
__device__ void store_piece(const float (&sums)[kRun], std::int64_t column, std::int64_t columns, float* partial) {
  __shared__ float of_lanes[kPieceLanes][kWarp * kRun];
  for (int j = 0; j < kRun; ++j) of_lanes[threadIdx.y][threadIdx.x * kRun + j] = sums[j];
  __syncthreads();
  if (threadIdx.y == 0 && column < columns) {
    for (int j = 0; j < kRun; ++j) {
      float sum = 0;
      for (int lane = 0; lane < kPieceLanes; ++lane) sum += of_lanes[lane][threadIdx.x * kRun + j];
      partial[columns * blockIdx.y + column + j] = sum;
    }
  }
  __syncthreads();  // before the next call writes to the shared memory
}

// The lanes of the kWarps warps that share a row (row_kernels.h). With one warp per row, a block has as many groups as
// it is high; with several warps it has one. All lanes of a group must take part in its sums.
template <int kWarps>
struct LaneGroup {
  __device__ static Lane lane() { return {static_cast<int>(threadIdx.x), kWarps * kWarp}; }

  template <int kRun, typename Terms>
  __device__ static float sum(std::int64_t columns, const Terms& terms) {
    return total(lane_sum<kRun>(lane(), columns, terms));
  }
  __device__ static float total(float value) {
    return reduced(value, [](float a, float b) { return a + b; });
  }
  __device__ static float largest(float value) {
    return reduced(value, [](float a, float b) { return ::fmaxf(a, b); });
  }

 private:
  template <typename Operation>
  __device__ static float reduced(float value, const Operation& operation) {
    for (int offset = kWarp / 2; offset > 0; offset /= 2)
      value = operation(value, __shfl_xor_sync(0xffffffffU, value, offset));
    if constexpr (kWarps > 1) {
      __shared__ float of_warps[kWarps];
      if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = value;
      __syncthreads();
      value = of_warps[0];
      for (int warp = 1; warp < kWarps; ++warp) value = operation(value, of_warps[warp]);
      __syncthreads();  // before the next call writes to the shared memory
    }
    return value;
  }
};

// A wide row has a block of kManyWarps; narrow rows have a warp each.
constexpr int kManyWarps = 8;
constexpr unsigned int kRowsOfBlock = 4;
constexpr std::int64_t kWidestOfWarp = 1024;

struct RowGrid {
  unsigned int blocks;
  dim3 threads;
};
template <int kWarps>
RowGrid row_grid(std::int64_t rows) {
  constexpr unsigned int kHeight = kWarps == 1 ? kRowsOfBlock : 1;
  return {blocks_along_x(blocks_for(rows, kHeight)), dim3(kWarps * kWarp, kHeight)};
}

template <typename Body>
void with_warps(std::int64_t columns, const Body& body) {
  if (columns <= kWidestOfWarp) {
    body(std::integral_constant<int, 1>{});
  } else {
    body(std::integral_constant<int, kManyWarps>{});
  }
}

__device__ inline std::int64_t row_of_group() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
}

}  // namespace sluice::nn::gpu
