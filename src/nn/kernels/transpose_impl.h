// transpose_impl: matrix transposition for one instruction set, in square blocks of kLanes rows in registers.
#pragma once

#include <utility>

#include "nn/kernels/kernels.h"
#include "nn/kernels/simd.h"

namespace sluice::nn::kernels::SLUICE_ISA {

// Swaps bit kStep of the row number with bit kStep of the column number, for all rows.
template <int kStep, int... kLane>
SLUICE_INLINE void swap_index_bit(Vec (&rows)[kLanes], std::integer_sequence<int, kLane...> /*lanes*/) {
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    if ((i & kStep) != 0) continue;
    const Vec a = rows[i], b = rows[i + kStep];
    rows[i] = __builtin_shufflevector(a, b, ((kLane & kStep) != 0 ? kLanes + kLane - kStep : kLane)...);
    rows[i + kStep] = __builtin_shufflevector(a, b, ((kLane & kStep) != 0 ? kLanes + kLane : kLane + kStep)...);
  }
}

SLUICE_INLINE void transpose_block(const float* in, std::int64_t in_stride, float* out, std::int64_t out_stride) {
  Vec rows[kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) rows[i] = load(in + i * in_stride);
  constexpr std::make_integer_sequence<int, kLanes> kAllLanes;
  swap_index_bit<1>(rows, kAllLanes);
  swap_index_bit<2>(rows, kAllLanes);
  if constexpr (kLanes > 4) swap_index_bit<4 % kLanes>(rows, kAllLanes);
  if constexpr (kLanes > 8) swap_index_bit<8 % kLanes>(rows, kAllLanes);
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) store(out + i * out_stride, rows[i]);
}

SLUICE_INLINE void transpose_part(const float* in, std::int64_t rows, std::int64_t columns, std::int64_t in_stride,
                                  float* out, std::int64_t out_stride) {
  for (std::int64_t c = 0; c < columns; ++c) {
    for (std::int64_t r = 0; r < rows; ++r) out[c * out_stride + r] = in[r * in_stride + c];
  }
}

static void transpose(const float* in, std::int64_t rows, std::int64_t columns, std::int64_t in_stride, float* out,
                      std::int64_t out_stride) {
  const std::int64_t whole_rows = rows / kLanes * kLanes, whole_columns = columns / kLanes * kLanes;
  for (std::int64_t r = 0; r < whole_rows; r += kLanes) {
    for (std::int64_t c = 0; c < whole_columns; c += kLanes) {
      transpose_block(in + r * in_stride + c, in_stride, out + c * out_stride + r, out_stride);
    }
  }
  transpose_part(in + whole_columns, whole_rows, columns - whole_columns, in_stride, out + whole_columns * out_stride,
                 out_stride);
  transpose_part(in + whole_rows * in_stride, rows - whole_rows, columns, in_stride, out + whole_rows, out_stride);
}

}  // namespace sluice::nn::kernels::SLUICE_ISA
