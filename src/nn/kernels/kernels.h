// kernels: inner loops of the CPU fast paths, as one table of function pointers per instruction set.
// Kernels compute in float32. T is the type in memory: float, or Bf16, which is widened on load and rounded on store.
// Results computed from NaN or infinity are never finite, as in ATen. Callers split rows and run the pieces in
// parallel.
// This folder must not use torch: its files are compiled with other flags and must share no inline code with the rest.
#pragma once

#include <cstdint>

namespace sluice::nn::kernels {

// A bfloat16 in ATen's format: the upper half of a float. Rounding is to nearest, ties to even.
struct Bf16 {
  std::uint16_t bits;
};

// The unit that products multiply: a float, or two bfloat16 that are adjacent in the summed dimension.
struct Bf16Pair {
  Bf16 first, second;
};
template <typename T>
struct OperandOf {
  using Type = float;
};
template <>
struct OperandOf<Bf16> {
  using Type = Bf16Pair;
};
template <typename T>
using Operand = typename OperandOf<T>::Type;
template <typename T>
inline constexpr std::int64_t kDepth = sizeof(Operand<T>) / sizeof(T);

// Batch normalisation over rows of `channels` adjacent values (channels_last), a multiple of kChannelStep.
inline constexpr std::int64_t kChannelStep = 16;

template <typename T>
struct BatchNormKernels {
  // sum[c] = sum over rows of (x - shift[c]); squares[c] = sum of (x - shift[c])^2.
  void (*statistics)(const T* x, const float* shift, std::int64_t rows, std::int64_t channels, float* sum,
                     float* squares);
  // y = x * scale + offset (+ residual), then max(0, .) if relu, which keeps NaN. residual may be null.
  void (*apply)(const T* x, const T* residual, const float* scale, const float* offset, std::int64_t rows,
                std::int64_t channels, bool relu, T* y);
  // g = 0 if y <= 0, else grad (y null: always grad); sum[c] = sum of g; dot[c] = sum of g * (x - mean[c]).
  void (*gradient_sums)(const T* x, const T* y, const T* grad, const float* mean, std::int64_t rows,
                        std::int64_t channels, float* sum, float* dot);
  // grad_x = a * g + b * (x - mean) + c per channel; grad_residual = g unless it is null.
  void (*gradient)(const T* x, const T* y, const T* grad, const float* mean, const float* a, const float* b,
                   const float* c, std::int64_t rows, std::int64_t channels, T* grad_x, T* grad_residual);
};

// x Phi(x). Phi is within 2e-7 of the exact distribution function (measured over [-13, 13], every instruction set).
template <typename T>
struct GeluKernels {
  void (*forward)(const T* x, std::int64_t count, T* y);
  void (*backward)(const T* x, const T* grad, std::int64_t count, T* grad_x);
};

// Root-mean-square norm of rows of `width` values: y = weight * n, with n = x * inverse rounded to Out and
// inverse[row] = 1 / sqrt(mean(x^2) + epsilon).
template <typename In, typename Out>
struct RmsNormKernels {
  void (*forward)(const In* x, const float* weight, float epsilon, std::int64_t rows, std::int64_t width, Out* y,
                  float* inverse);
  // grad_weight[i] += sum over rows of grad * n.
  void (*backward)(const In* x, const Out* grad, const float* weight, const float* inverse, std::int64_t rows,
                   std::int64_t width, In* grad_x, float* grad_weight);
};

// y = gate * sigmoid(gate) * up for rows of `width` gates, followed by `width` ups.
template <typename T>
struct SwigluKernels {
  void (*forward)(const T* gated, std::int64_t rows, std::int64_t width, T* y);
  void (*backward)(const T* gated, const T* grad, std::int64_t rows, std::int64_t width, T* grad_gated);
};

// Rotates the pairs (x[i], x[half + i]) of each head of one position by the angle of cosine[i] and sine[i] * direction.
template <typename T>
struct RotaryKernels {
  void (*rotate)(const T* x, const float* cosine, const float* sine, float direction, std::int64_t heads,
                 std::int64_t half, T* y);
};

struct RowSums {
  float largest, exponentials, sum;  // of x, exp(x - largest) and x
};
template <typename T>
struct CrossEntropyKernels {
  RowSums (*sums)(const T* row, std::int64_t count);
  // grad = factor * (exp(x - log_sum) - offset)
  void (*gradient)(const T* row, std::int64_t count, float log_sum, float factor, float offset, T* grad);
};

// One key head of one sample, and the query heads that share it: adjacent in q, out and their gradients. Rows of q, k,
// v and their gradients are `*_stride` numbers apart. Requires: head_width is a multiple of kHeadStep. probabilities:
// [query_heads, queries, padded(keys)]; the columns after `keys` are zero.
inline constexpr std::int64_t kHeadStep = 16;
struct AttentionShape {
  std::int64_t queries, keys, head_width;
  std::int64_t q_stride, kv_stride, out_stride;
  float scale;
  std::int64_t query_heads = 1;
  bool causal = false;  // LongAttentionKernels only: query i sees keys 0 .. i
};
template <typename T>
struct AttentionKernels {
  std::int64_t (*padded)(std::int64_t keys);  // row length of probabilities
  std::int64_t (*scratch_floats)(std::int64_t queries, std::int64_t keys, std::int64_t head_width);
  void (*forward)(const AttentionShape& shape, const T* q, const T* k, const T* v, T* probabilities, T* out,
                  float* scratch);
  void (*backward)(const AttentionShape& shape, const T* q, const T* k, const T* v, const T* probabilities,
                   const T* grad_out, T* grad_q, T* grad_k, T* grad_v, float* scratch);
};

// The same in blocks of queries: keeps no probabilities, backward computes them again.
template <typename T>
struct LongAttentionKernels {
  std::int64_t (*scratch_floats)(std::int64_t keys, std::int64_t head_width);
  void (*forward)(const AttentionShape& shape, const T* q, const T* k, const T* v, T* out, float* scratch);
  void (*backward)(const AttentionShape& shape, const T* q, const T* k, const T* v, const T* grad_out, T* grad_q,
                   T* grad_k, T* grad_v, float* scratch);
};

// A 3x3 convolution of stride 1 and padding 1 by Winograd's minimal filtering, F(2x2, 3x3) or F(4x4, 3x3). d: the 4x4
// (6x6) inputs of a tile, y: its outputs, g: the weights of a channel pair, *: elementwise; A, B, G:
// winograd_filters.h.
//   y = A' [(G g G') * (B' d B)] A,   and so   dg = G' [sum over tiles of (B' d B) * (A dy A')] G.
// The products of each of the 16 (36) elements form a "plane", a matrix product over tiles and channels. The input
// gradient is the same convolution of dy with the weights rotated and transposed.
struct WinogradMap {
  std::int64_t height, width, channels;  // of [images, height, width, channels]; channels: a multiple of kChannelStep
};
// The tiles [first, first + tiles) of a map share the planes; a call processes those in [begin, end) of them. Tiles are
// numbered along rows, then columns, then images.
struct WinogradBlock {
  std::int64_t first, tiles, begin, end;
};
// Strides of element (row, column, tap) of a [rows, columns, 3, 3] weight. rows and columns are multiples of
// kChannelStep. rotated: the kernel is turned by 180 degrees.
struct WinogradWeights {
  std::int64_t rows, columns, row_stride, column_stride, tap_stride;
  bool rotated = false;
};
// Operands between planes of [rows, columns]; not a multiple of 4 KiB, so that planes do not share cache sets.
[[maybe_unused]] static constexpr std::int64_t winograd_plane(std::int64_t rows, std::int64_t columns) {
  return (rows * columns + 1023) / 1024 * 1024 + 64;
}
// x, y and the gradients are numbers of type T; v, u and z are operands; weights, m and sums are float. With d =
// kDepth<T> = 2, the summed dimension has half as many operands, zero-padded at the end.
template <typename T>
struct WinogradKernels {
  std::int64_t outputs, planes;  // a tile has outputs x outputs; planes = (outputs + 2)^2
  // v = B' d B: [planes][tiles, channels / d] for products, or [planes][tiles / d, channels in panels] for
  // weight_products. For the latter, blocks begin at multiples of d and end at them, except at the last tile.
  void (*input)(const WinogradMap& map, const WinogradBlock& block, const T* x, Operand<T>* v);
  void (*input_in_panels)(const WinogradMap& map, const WinogradBlock& block, const T* x, Operand<T>* v);
  // u [planes][rows / d, columns in panels] = G g G' for rows [begin, end), both multiples of d.
  void (*weights)(const WinogradWeights& shape, const float* weight, std::int64_t begin, std::int64_t end,
                  Operand<T>* u);
  // m [planes][tiles, columns] = v [planes][tiles, inner / d] u [planes][inner / d, columns in panels]
  void (*products)(std::int64_t tiles, std::int64_t inner, std::int64_t columns, const Operand<T>* v,
                   const Operand<T>* u, float* m);
  // y = A' m A + bias (null: no bias).
  void (*output)(const WinogradMap& map, const WinogradBlock& block, const float* m, const float* bias, T* y);
  // z [planes][tiles / d, channels] = A dy A'; blocks as for input_in_panels.
  void (*output_gradient)(const WinogradMap& map, const WinogradBlock& block, const T* grad, Operand<T>* z);
  // grad_u [planes][rows, columns] = z' v, or += if `add`, for piece `piece` of planes * panels(columns).
  void (*weight_products)(const WinogradWeights& shape, std::int64_t tiles, const Operand<T>* z, const Operand<T>* v,
                          std::int64_t piece, bool add, float* grad_u);
  std::int64_t (*panels)(std::int64_t columns);
  // grad_weight = G' grad_u G for rows [begin, end).
  void (*weight_gradient)(const WinogradWeights& shape, const float* grad_u, std::int64_t begin, std::int64_t end,
                          float* grad_weight);
};

struct MatrixKernels {
  // out[column, row] = in[row, column]; in is [rows, columns]. Rows are `in_stride` and `out_stride` apart.
  void (*transpose)(const float* in, std::int64_t rows, std::int64_t columns, std::int64_t in_stride, float* out,
                    std::int64_t out_stride);
};

template <template <typename> typename Kernels>
struct ByType {
  Kernels<float> in_float;
  Kernels<Bf16> in_bf16;

  template <typename T>
  [[nodiscard]] const Kernels<T>& of() const {
    if constexpr (sizeof(T) == sizeof(float)) {
      return in_float;
    } else {
      return in_bf16;
    }
  }
};

struct Table {
  const char* instruction_set;  // "avx512_bf16", "avx512", "avx2", "baseline"
  ByType<BatchNormKernels> batch_norm;
  ByType<GeluKernels> gelu;
  RmsNormKernels<float, float> rms_norm;
  RmsNormKernels<float, Bf16> rms_norm_to_bf16;
  RmsNormKernels<Bf16, Bf16> rms_norm_of_bf16;
  ByType<SwigluKernels> swiglu;
  ByType<RotaryKernels> rotary;
  ByType<CrossEntropyKernels> cross_entropy;
  ByType<AttentionKernels> attention;
  ByType<LongAttentionKernels> long_attention;
  MatrixKernels matrix;
  ByType<WinogradKernels> winograd_2x2, winograd_4x4;
};

const Table& avx512_bf16();
const Table& avx512();
const Table& avx2();
const Table& baseline();

bool supported(const Table& table);

const Table& best();

}  // namespace sluice::nn::kernels
