// long_attention_impl: softmax attention in blocks of queries for one instruction set (kernels.h). A block's
// probabilities stay in the cache. Backward computes them again, as in FlashAttention (Dao et al. 2022). Causal blocks
// skip later keys.
#pragma once

#include "nn/kernels/attention_impl.h"

namespace sluice::nn::kernels::SLUICE_ISA {

inline constexpr std::int64_t kBlockQueries = 8 * kTileRows;

// Rows of a block; not a multiple of 4 KiB, so that rows do not share cache sets.
static std::int64_t block_stride(std::int64_t keys) { return attention_padded(keys) + 16; }

static std::int64_t long_attention_scratch(std::int64_t keys, std::int64_t head_width) {
  return 4 * keys * head_width + 2 * (head_width + kBlockQueries) * block_stride(keys) + 3 * kBlockQueries * head_width;
}

// The matrices of one key head in scratch, all in float and with adjacent rows.
struct LongHead {
  std::int64_t stride;
  float *k, *v, *grad_k, *grad_v;      // [keys, head_width]
  float *k_transposed, *v_transposed;  // [head_width, stride]
  float *probabilities, *slope;        // [kBlockQueries, stride]
  float *q, *out, *grad_q;             // [kBlockQueries, head_width]; out: or its gradient

  LongHead(const AttentionShape& shape, float* memory) : stride(block_stride(shape.keys)) {
    const auto take = [&](std::int64_t rows, std::int64_t columns) {
      float* const begin = memory;
      memory += rows * columns;
      return begin;
    };
    const std::int64_t width = shape.head_width;
    for (float** matrix : {&k, &v, &grad_k, &grad_v}) *matrix = take(shape.keys, width);
    for (float** matrix : {&k_transposed, &v_transposed}) *matrix = take(width, stride);
    for (float** matrix : {&probabilities, &slope}) *matrix = take(kBlockQueries, stride);
    for (float** matrix : {&q, &out, &grad_q}) *matrix = take(kBlockQueries, width);
  }
};

// Queries [first, first + rows) and the first `keys` keys, which include all that they see.
struct QueryBlock {
  std::int64_t first, rows, keys;

  QueryBlock(const AttentionShape& shape, std::int64_t begin)
      : first(begin),
        rows(shape.queries - begin < kBlockQueries ? shape.queries - begin : kBlockQueries),
        keys(shape.causal ? begin + rows : shape.keys) {}
};

static void transpose_head(const float* rows, std::int64_t keys, std::int64_t width, std::int64_t stride, float* to) {
  transpose(rows, keys, width, width, to, stride);
  for (std::int64_t i = 0; i < width; ++i) {
    for (std::int64_t j = keys; j < attention_padded(keys); ++j) to[i * stride + j] = 0;
  }
}

static void block_probabilities(const AttentionShape& shape, const QueryBlock& block, const LongHead& head) {
  const std::int64_t padded = attention_padded(block.keys), width = shape.head_width;
  product(block.rows, padded, width, Matrix<float>{head.q, width, 1}, head.k_transposed, head.stride,
          head.probabilities, head.stride);
  for (std::int64_t i = 0; i < block.rows; ++i) {
    float* row = head.probabilities + i * head.stride;
    const std::int64_t seen = shape.causal ? block.first + i + 1 : block.keys;
    softmax_row(row, seen, shape.scale);
    for (std::int64_t j = attention_padded(seen); j < padded; j += kLanes) store(row + j, Vec{});
  }
}

template <typename T>
static void long_attention_forward(const AttentionShape& shape, const T* q, const T* k, const T* v, T* out,
                                   float* scratch) {
  const LongHead head(shape, scratch);
  const std::int64_t width = shape.head_width;
  widen(k, shape.kv_stride, shape.keys, width, head.k);
  widen(v, shape.kv_stride, shape.keys, width, head.v);
  transpose_head(head.k, shape.keys, width, head.stride, head.k_transposed);
  for (std::int64_t h = 0; h < shape.query_heads; ++h, q += width, out += width) {
    for (std::int64_t first = 0; first < shape.queries; first += kBlockQueries) {
      const QueryBlock block(shape, first);
      widen(q + first * shape.q_stride, shape.q_stride, block.rows, width, head.q);
      block_probabilities(shape, block, head);
      product(block.rows, width, block.keys, Matrix<float>{head.probabilities, head.stride, 1}, head.v, width, head.out,
              width);
      narrow(head.out, block.rows, width, out + first * shape.out_stride, shape.out_stride);
    }
  }
}

// The gradients of a block whose q and grad_out (in head.out) are widened. The formulas: attend_backward().
static void block_backward(const AttentionShape& shape, const QueryBlock& block, const LongHead& head) {
  const std::int64_t padded = attention_padded(block.keys), width = shape.head_width;
  block_probabilities(shape, block, head);
  product<Into::kSum>(block.keys, width, block.rows, Matrix<float>{head.probabilities, 1, head.stride}, head.out, width,
                      head.grad_v, width);
  product(block.rows, padded, width, Matrix<float>{head.out, width, 1}, head.v_transposed, head.stride, head.slope,
          head.stride);
  for (std::int64_t i = 0; i < block.rows; ++i)
    softmax_slope(head.probabilities + i * head.stride, padded, shape.scale, head.slope + i * head.stride);
  product(block.rows, width, block.keys, Matrix<float>{head.slope, head.stride, 1}, head.k, width, head.grad_q, width);
  product<Into::kSum>(block.keys, width, block.rows, Matrix<float>{head.slope, 1, head.stride}, head.q, width,
                      head.grad_k, width);
}

template <typename T>
static void long_attention_backward(const AttentionShape& shape, const T* q, const T* k, const T* v, const T* grad_out,
                                    T* grad_q, T* grad_k, T* grad_v, float* scratch) {
  const LongHead head(shape, scratch);
  const std::int64_t width = shape.head_width;
  widen(k, shape.kv_stride, shape.keys, width, head.k);
  widen(v, shape.kv_stride, shape.keys, width, head.v);
  transpose_head(head.k, shape.keys, width, head.stride, head.k_transposed);
  transpose_head(head.v, shape.keys, width, head.stride, head.v_transposed);
  for (std::int64_t i = 0; i < shape.keys * width; ++i) head.grad_k[i] = head.grad_v[i] = 0;
  for (std::int64_t h = 0; h < shape.query_heads; ++h, q += width, grad_out += width, grad_q += width) {
    for (std::int64_t first = 0; first < shape.queries; first += kBlockQueries) {
      const QueryBlock block(shape, first);
      widen(q + first * shape.q_stride, shape.q_stride, block.rows, width, head.q);
      widen(grad_out + first * shape.out_stride, shape.out_stride, block.rows, width, head.out);
      block_backward(shape, block, head);
      narrow(head.grad_q, block.rows, width, grad_q + first * shape.q_stride, shape.q_stride);
    }
  }
  narrow(head.grad_k, shape.keys, width, grad_k, shape.kv_stride);
  narrow(head.grad_v, shape.keys, width, grad_v, shape.kv_stride);
}

}  // namespace sluice::nn::kernels::SLUICE_ISA
