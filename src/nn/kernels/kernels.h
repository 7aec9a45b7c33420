// kernels: the inner loops of the CPU fast paths, float32 inside, as one table of function pointers per instruction
// set. Not here: threading (callers split rows and run the pieces with at::parallel_for), shapes, autograd, float64.
// The same source (simd.h and the *_impl.h files) is compiled once per instruction set; best() answers with the widest
// that this CPU has, so one binary runs everywhere. Every function is pure: it reads its inputs and writes its outputs.
// NaN and infinities come through as in ATen's operations: what is computed from one is NaN or infinite, not a number.
// Numbers lie in memory as T: float, or Bf16, which is widened when it is read and rounded when it is written.
// No torch here: these files are compiled with other flags and must share no inline code with the rest.
#pragma once

#include <cstdint>

namespace sluice::nn::kernels {

// A bfloat16, as ATen stores it: the upper half of a float. Rounded to nearest, ties to even.
struct Bf16 {
  std::uint16_t bits;
};

// What a product multiplies at a time: a float, or two bfloat16 that follow each other in the dimension that is summed
// over.
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
inline constexpr std::int64_t kDepth = sizeof(Operand<T>) / sizeof(T);  // numbers in an operand

// Batch normalisation over rows of `channels` adjacent values (channels_last); channels must be a multiple of
// kChannelStep.
inline constexpr std::int64_t kChannelStep = 16;

template <typename T>
struct BatchNormKernels {
  // sum[c] = sum over rows of (x - shift[c]); squares[c] = sum of (x - shift[c])^2.
  void (*statistics)(const T* x, const float* shift, std::int64_t rows, std::int64_t channels, float* sum,
                     float* squares);
  // y = x * scale + offset (+ residual), then max(0, .), of NaN NaN, when relu. residual may be null.
  void (*apply)(const T* x, const T* residual, const float* scale, const float* offset, std::int64_t rows,
                std::int64_t channels, bool relu, T* y);
  // g = 0 where y <= 0, else grad (all of grad when y is null); sum[c] = sum of g; dot[c] = sum of g * (x - mean[c]).
  void (*gradient_sums)(const T* x, const T* y, const T* grad, const float* mean, std::int64_t rows,
                        std::int64_t channels, float* sum, float* dot);
  // grad_x = a * g + b * (x - mean) + c per channel; grad_residual = g when it is not null.
  void (*gradient)(const T* x, const T* y, const T* grad, const float* mean, const float* a, const float* b,
                   const float* c, std::int64_t rows, std::int64_t channels, T* grad_x, T* grad_residual);
};

// x Phi(x); Phi is within 2e-7 of the exact distribution function (measured over [-13, 13], every instruction set).
template <typename T>
struct GeluKernels {
  void (*forward)(const T* x, std::int64_t count, T* y);
  void (*backward)(const T* x, const T* grad, std::int64_t count, T* grad_x);
};

// One head of one sample. Rows of q, k, v and their gradients are `*_stride` numbers apart; head_width is a multiple of
// kHeadStep. probabilities: [queries, padded(keys)], the columns after `keys` are zero.
inline constexpr std::int64_t kHeadStep = 16;
struct AttentionShape {
  std::int64_t queries, keys, head_width;
  std::int64_t q_stride, kv_stride, out_stride;
  float scale;
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

// A 3x3 convolution of stride 1 and padding 1 by Winograd's minimal filtering F(2x2, 3x3) or F(4x4, 3x3): 16 products
// per channel pair and tile of 2x2 outputs in place of 36, or 36 and 4x4 outputs in place of 144. With d the 4x4 (6x6)
// inputs, y the outputs of a tile, g the weights of a channel pair and * element by element (the matrices A, B, G:
// winograd_filters.h),
//   y = A' [(G g G') * (B' d B)] A,   and so   dg = G' [sum over tiles of (B' d B) * (A dy A')] G.
// The products of the 16 (36) elements are "planes": matrix products over tiles and channels.
// The input gradient is the same convolution of dy with the weights rotated and transposed.
struct WinogradMap {
  std::int64_t height, width, channels;  // of [images, height, width, channels]; channels: a multiple of kChannelStep
};
// The tiles [first, first + tiles) of a map (tiles are numbered along rows, then columns, then images) share the
// planes; a call handles those in [begin, end) of them.
struct WinogradBlock {
  std::int64_t first, tiles, begin, end;
};
// Element (row, column, tap) of a [rows, columns, 3, 3] weight, however it lies in memory. rows is a multiple of
// kChannelStep, columns too. rotated: by half a turn.
struct WinogradWeights {
  std::int64_t rows, columns, row_stride, column_stride, tap_stride;
  bool rotated = false;
};
// Operands from one plane of [rows, columns] to the next: a little off the multiples of 4 KiB, where all planes would
// compete for the same few places in the cache.
[[maybe_unused]] static constexpr std::int64_t winograd_plane(std::int64_t rows, std::int64_t columns) {
  return (rows * columns + 1023) / 1024 * 1024 + 64;
}
// x, y and the gradients are numbers of type T, v, u and z operands: where d = kDepth<T> is 2, what has `channels` or
// `tiles` numbers in the dimension that is summed over has half as many operands, and a last one is filled up with
// zero. Weights, m and sums are float.
template <typename T>
struct WinogradKernels {
  std::int64_t outputs, planes;  // a tile has outputs x outputs; planes = (outputs + 2)^2
  // v [planes][tiles, channels / d] = B' d B, for products; or [planes][tiles / d, channels in panels], for
  // weight_products, whose blocks begin and end at multiples of d, but for the last end.
  void (*input)(const WinogradMap& map, const WinogradBlock& block, const T* x, Operand<T>* v);
  void (*input_in_panels)(const WinogradMap& map, const WinogradBlock& block, const T* x, Operand<T>* v);
  // u [planes][rows / d, columns in panels] = G g G' for rows [begin, end), multiples of d.
  void (*weights)(const WinogradWeights& shape, const float* weight, std::int64_t begin, std::int64_t end,
                  Operand<T>* u);
  // m [planes][tiles, columns] = v [planes][tiles, inner / d] u [planes][inner / d, columns in panels]
  void (*products)(std::int64_t tiles, std::int64_t inner, std::int64_t columns, const Operand<T>* v,
                   const Operand<T>* u, float* m);
  // y = A' m A + bias (none when null).
  void (*output)(const WinogradMap& map, const WinogradBlock& block, const float* m, const float* bias, T* y);
  // z [planes][tiles / d, channels] = A dy A'; blocks as for input_in_panels.
  void (*output_gradient)(const WinogradMap& map, const WinogradBlock& block, const T* grad, Operand<T>* z);
  // grad_u [planes][rows, columns] = (or += when add) z' v, where z has `rows` and v `columns` channels: the piece
  // `piece` of planes * panels(columns).
  void (*weight_products)(const WinogradWeights& shape, std::int64_t tiles, const Operand<T>* z, const Operand<T>* v,
                          std::int64_t piece, bool add, float* grad_u);
  std::int64_t (*panels)(std::int64_t columns);
  // grad_weight = G' grad_u G for rows [begin, end).
  void (*weight_gradient)(const WinogradWeights& shape, const float* grad_u, std::int64_t begin, std::int64_t end,
                          float* grad_weight);
};

struct MatrixKernels {
  // out[column, row] = in[row, column]; in is [rows, columns] with rows `in_stride` apart, out rows `out_stride` apart.
  void (*transpose)(const float* in, std::int64_t rows, std::int64_t columns, std::int64_t in_stride, float* out,
                    std::int64_t out_stride);
};

// The same kernels for both types of numbers.
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
  ByType<AttentionKernels> attention;
  MatrixKernels matrix;
  ByType<WinogradKernels> winograd_2x2, winograd_4x4;
};

const Table& avx512_bf16();
const Table& avx512();
const Table& avx2();
const Table& baseline();

// Does this CPU (and its operating system) run the table's instructions?
bool supported(const Table& table);

// The widest supported table; chosen once per process.
const Table& best();

}  // namespace sluice::nn::kernels
