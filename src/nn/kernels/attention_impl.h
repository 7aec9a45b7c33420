// attention_impl: softmax attention of one head for one instruction set (kernels.h), for short sequences whose whole
// probability matrix stays in the cache.
#pragma once

#include "nn/kernels/kernels.h"
#include "nn/kernels/product_impl.h"
#include "nn/kernels/simd.h"
#include "nn/kernels/transpose_impl.h"

namespace sluice::nn::kernels::SLUICE_ISA {

static std::int64_t attention_padded(std::int64_t keys) { return (keys + 15) / 16 * 16; }

static std::int64_t attention_scratch(std::int64_t queries, std::int64_t keys, std::int64_t head_width) {
  return (head_width + queries) * attention_padded(keys);
}

static void transpose_padded(const float* rows, std::int64_t stride, std::int64_t keys, std::int64_t head_width,
                             float* to) {
  const std::int64_t padded = attention_padded(keys);
  transpose(rows, keys, head_width, stride, to, padded);
  for (std::int64_t i = 0; i < head_width; ++i) {
    for (std::int64_t j = keys; j < padded; ++j) to[i * padded + j] = 0;
  }
}

// The maximum may or may not skip NaN. The exponential of NaN is NaN, so the sum and the whole row become NaN.
static void softmax_row(float* row, std::int64_t keys, float scale) {
  const std::int64_t padded = attention_padded(keys);
  Vec largest = splat(row[0]);
  std::int64_t j = 0;
  for (; j + kLanes <= keys; j += kLanes) largest = at_least(largest, load(row + j));
  float top = horizontal_max(largest);
  for (; j < keys; ++j) top = row[j] > top ? row[j] : top;
  Vec total{};
  for (j = 0; j < padded; j += kLanes) {
    const Vec value = exp_negative((load(row + j) - top) * scale);
    store(row + j, value);
    if (j + kLanes <= keys) total += value;
  }
  float sum = horizontal_sum(total);
  for (j = keys / kLanes * kLanes; j < keys; ++j) sum += row[j];
  const float inverse = 1.0F / sum;
  for (j = 0; j < padded; j += kLanes) store(row + j, load(row + j) * inverse);
  for (j = keys; j < padded; ++j) row[j] = 0;
}

// slope: dP of a row, becomes dS.
static void softmax_slope(const float* probabilities, std::int64_t padded, float scale, float* slope) {
  Vec dot{};
  for (std::int64_t j = 0; j < padded; j += kLanes) dot += load(probabilities + j) * load(slope + j);
  const float mean = horizontal_sum(dot);
  for (std::int64_t j = 0; j < padded; j += kLanes)
    store(slope + j, load(probabilities + j) * (load(slope + j) - mean) * scale);
}

static void attend(const AttentionShape& shape, const float* q, const float* k, const float* v, float* probabilities,
                   float* out, float* scratch) {
  const std::int64_t padded = attention_padded(shape.keys);
  transpose_padded(k, shape.kv_stride, shape.keys, shape.head_width, scratch);
  product(shape.queries, padded, shape.head_width, Matrix<float>{q, shape.q_stride, 1}, scratch, padded, probabilities,
          padded);
  for (std::int64_t i = 0; i < shape.queries; ++i) softmax_row(probabilities + i * padded, shape.keys, shape.scale);
  product(shape.queries, shape.head_width, shape.keys, Matrix<float>{probabilities, padded, 1}, v, shape.kv_stride, out,
          shape.out_stride);
}

// With P the probabilities: dV = P' dO, dP = dO V', dS = P (dP - rowsum(dP P)) scale, dQ = dS K, dK = dS' Q.
// kInto: of dK and dV.
template <Into kInto>
static void attend_backward(const AttentionShape& shape, const float* q, const float* k, const float* v,
                            const float* probabilities, const float* grad_out, float* grad_q, float* grad_k,
                            float* grad_v, float* scratch) {
  const std::int64_t padded = attention_padded(shape.keys);
  float* v_transposed = scratch;
  float* slope = scratch + shape.head_width * padded;
  product<kInto>(shape.keys, shape.head_width, shape.queries, Matrix<float>{probabilities, 1, padded}, grad_out,
                 shape.out_stride, grad_v, shape.kv_stride);
  transpose_padded(v, shape.kv_stride, shape.keys, shape.head_width, v_transposed);
  product(shape.queries, padded, shape.head_width, Matrix<float>{grad_out, shape.out_stride, 1}, v_transposed, padded,
          slope, padded);
  for (std::int64_t i = 0; i < shape.queries; ++i)
    softmax_slope(probabilities + i * padded, padded, shape.scale, slope + i * padded);
  product(shape.queries, shape.head_width, shape.keys, Matrix<float>{slope, padded, 1}, k, shape.kv_stride, grad_q,
          shape.q_stride);
  product<kInto>(shape.keys, shape.head_width, shape.queries, Matrix<float>{slope, 1, padded}, q, shape.q_stride,
                 grad_k, shape.kv_stride);
}

static void attention_forward(const AttentionShape& shape, const float* q, const float* k, const float* v,
                              float* probabilities, float* out, float* scratch) {
  const std::int64_t matrix = shape.queries * attention_padded(shape.keys);
  for (std::int64_t h = 0; h < shape.query_heads; ++h) {
    const std::int64_t column = h * shape.head_width;
    attend(shape, q + column, k, v, probabilities + h * matrix, out + column, scratch);
  }
}

static void attention_backward(const AttentionShape& shape, const float* q, const float* k, const float* v,
                               const float* probabilities, const float* grad_out, float* grad_q, float* grad_k,
                               float* grad_v, float* scratch) {
  const std::int64_t matrix = shape.queries * attention_padded(shape.keys);
  for (std::int64_t h = 0; h < shape.query_heads; ++h) {
    const std::int64_t column = h * shape.head_width;
    const auto backward = h == 0 ? attend_backward<Into::kEmpty> : attend_backward<Into::kSum>;
    backward(shape, q + column, k, v, probabilities + h * matrix, grad_out + column, grad_q + column, grad_k, grad_v,
             scratch);
  }
}

// In bfloat16 a head is widened, computed in float and rounded. All its matrices stay in the cache.
struct FloatHead {
  float *q, *k, *v, *probabilities, *out, *rest;

  FloatHead(const AttentionShape& shape, float* memory)
      : q(memory),
        k(q + shape.queries * shape.head_width),
        v(k + shape.keys * shape.head_width),
        probabilities(v + shape.keys * shape.head_width),
        out(probabilities + shape.queries * attention_padded(shape.keys)),
        rest(out + shape.queries * shape.head_width) {}
};
SLUICE_INLINE AttentionShape as_adjacent(AttentionShape shape) {
  shape.q_stride = shape.kv_stride = shape.out_stride = shape.head_width;
  return shape;
}

static std::int64_t bf16_attention_scratch(std::int64_t queries, std::int64_t keys, std::int64_t head_width) {
  const std::int64_t rows = 2 * (queries + keys) * head_width;
  return 2 * rows + queries * attention_padded(keys) + attention_scratch(queries, keys, head_width);
}

// Requires: width is a multiple of kLanes.
template <typename T>
static void widen(const T* from, std::int64_t stride, std::int64_t rows, std::int64_t width, float* to) {
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < width; j += kLanes) store(to + i * width + j, load(from + i * stride + j));
  }
}
template <typename T>
static void narrow(const float* from, std::int64_t rows, std::int64_t width, T* to, std::int64_t stride) {
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < width; j += kLanes) store(to + i * stride + j, load(from + i * width + j));
  }
}

static void bf16_attention_forward(const AttentionShape& shape, const Bf16* q, const Bf16* k, const Bf16* v,
                                   Bf16* probabilities, Bf16* out, float* scratch) {
  const FloatHead head(shape, scratch);
  const std::int64_t padded = attention_padded(shape.keys), width = shape.head_width;
  widen(k, shape.kv_stride, shape.keys, width, head.k);
  widen(v, shape.kv_stride, shape.keys, width, head.v);
  for (std::int64_t h = 0; h < shape.query_heads; ++h) {
    widen(q + h * width, shape.q_stride, shape.queries, width, head.q);
    attend(as_adjacent(shape), head.q, head.k, head.v, head.probabilities, head.out, head.rest);
    narrow(head.probabilities, shape.queries, padded, probabilities + h * shape.queries * padded, padded);
    narrow(head.out, shape.queries, width, out + h * width, shape.out_stride);
  }
}

static void bf16_attention_backward(const AttentionShape& shape, const Bf16* q, const Bf16* k, const Bf16* v,
                                    const Bf16* probabilities, const Bf16* grad_out, Bf16* grad_q, Bf16* grad_k,
                                    Bf16* grad_v, float* scratch) {
  const FloatHead head(shape, scratch);
  const std::int64_t padded = attention_padded(shape.keys), width = shape.head_width;
  float* to_q = head.rest;
  float* to_k = to_q + shape.queries * width;
  float* to_v = to_k + shape.keys * width;
  widen(k, shape.kv_stride, shape.keys, width, head.k);
  widen(v, shape.kv_stride, shape.keys, width, head.v);
  for (std::int64_t h = 0; h < shape.query_heads; ++h) {
    widen(q + h * width, shape.q_stride, shape.queries, width, head.q);
    widen(probabilities + h * shape.queries * padded, padded, shape.queries, padded, head.probabilities);
    widen(grad_out + h * width, shape.out_stride, shape.queries, width, head.out);
    const auto backward = h == 0 ? attend_backward<Into::kEmpty> : attend_backward<Into::kSum>;
    backward(as_adjacent(shape), head.q, head.k, head.v, head.probabilities, head.out, to_q, to_k, to_v,
             to_v + shape.keys * width);
    narrow(to_q, shape.queries, width, grad_q + h * width, shape.q_stride);
  }
  narrow(to_k, shape.keys, width, grad_k, shape.kv_stride);
  narrow(to_v, shape.keys, width, grad_v, shape.kv_stride);
}

}  // namespace sluice::nn::kernels::SLUICE_ISA
