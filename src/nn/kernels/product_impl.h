// product_impl: product of two small float matrices with register tiles over operands in the cache.
#pragma once

#include "nn/kernels/kernels.h"
#include "nn/kernels/simd.h"

namespace sluice::nn::kernels::SLUICE_ISA {

#if defined(__AVX512F__)
inline constexpr int kTileRows = 6;
inline constexpr int kTileVectors = 4;
#else
inline constexpr int kTileRows = 6;
inline constexpr int kTileVectors = 2;
#endif

template <typename T>
struct Matrix {  // element (i, j) at data[i * row_stride + j * column_stride]; T: float or Bf16Pair
  const T* data;
  std::int64_t row_stride, column_stride;
};
template <typename T>
SLUICE_INLINE Matrix<T> rows_from(Matrix<T> a, std::int64_t row) {
  return {a.data + row * a.row_stride, a.row_stride, a.column_stride};
}

enum class Into { kEmpty, kSum };

template <Into kInto, int kRows, int kVectors, typename T>
SLUICE_INLINE void tile_product(Matrix<T> a, const T* b, std::int64_t b_stride, std::int64_t inner, float* c,
                                std::int64_t c_stride) {
  Vec sum[kRows][kVectors] = {};
  for (std::int64_t p = 0; p < inner; ++p) {
    typename OperandVecOf<T>::Type right[kVectors];
#pragma GCC unroll 12
    for (int v = 0; v < kVectors; ++v) right[v] = load(b + p * b_stride + v * kLanes);
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      const T left = a.data[r * a.row_stride + p * a.column_stride];
#pragma GCC unroll 12
      for (int v = 0; v < kVectors; ++v) sum[r][v] = add_products(sum[r][v], left, right[v]);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 12
    for (int v = 0; v < kVectors; ++v) {
      float* to = c + r * c_stride + v * kLanes;
      store(to, kInto == Into::kSum ? load(to) + sum[r][v] : sum[r][v]);
    }
  }
}

template <Into kInto, int kVectors, typename T>
static void strip_product(std::int64_t rows, Matrix<T> a, const T* b, std::int64_t b_stride, std::int64_t inner,
                          float* c, std::int64_t c_stride) {
  std::int64_t r = 0;
  if constexpr (kVectors == 1) {  // otherwise a tile has too few sums to hide the latency of additions
    for (; r + 2 * kTileRows <= rows; r += 2 * kTileRows)
      tile_product<kInto, 2 * kTileRows, 1>(rows_from(a, r), b, b_stride, inner, c + r * c_stride, c_stride);
  }
  for (; r + kTileRows <= rows; r += kTileRows)
    tile_product<kInto, kTileRows, kVectors>(rows_from(a, r), b, b_stride, inner, c + r * c_stride, c_stride);
  for (; r + 4 <= rows; r += 4)
    tile_product<kInto, 4, kVectors>(rows_from(a, r), b, b_stride, inner, c + r * c_stride, c_stride);
  for (; r + 2 <= rows; r += 2)
    tile_product<kInto, 2, kVectors>(rows_from(a, r), b, b_stride, inner, c + r * c_stride, c_stride);
  if (r < rows) tile_product<kInto, 1, kVectors>(rows_from(a, r), b, b_stride, inner, c + r * c_stride, c_stride);
}

// c [rows, columns] = (or +=) a [rows, inner] b [inner, columns]. columns is a multiple of kLanes, adjacent in b and c.
template <Into kInto = Into::kEmpty, typename T>
static void product(std::int64_t rows, std::int64_t columns, std::int64_t inner, Matrix<T> a, const T* b,
                    std::int64_t b_stride, float* c, std::int64_t c_stride) {
  std::int64_t j = 0;
  for (; j + kTileVectors * kLanes <= columns; j += kTileVectors * kLanes) {
    strip_product<kInto, kTileVectors>(rows, a, b + j, b_stride, inner, c + j, c_stride);
  }
  for (; j + 2 * kLanes <= columns; j += 2 * kLanes) {
    strip_product<kInto, 2>(rows, a, b + j, b_stride, inner, c + j, c_stride);
  }
  for (; j < columns; j += kLanes) strip_product<kInto, 1>(rows, a, b + j, b_stride, inner, c + j, c_stride);
}

}  // namespace sluice::nn::kernels::SLUICE_ISA
