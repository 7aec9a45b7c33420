// winograd_impl: the steps of a 3x3 convolution by Winograd's algorithms for one instruction set (contracts:
// kernels.h). Each lane of a vector is a channel, so the transforms need no shuffles.
#pragma once

#include "nn/kernels/kernels.h"
#include "nn/kernels/product_impl.h"
#include "nn/kernels/simd.h"
#include "nn/kernels/transpose_impl.h"
#include "nn/kernels/winograd_filters.h"

namespace sluice::nn::kernels::SLUICE_ISA {

inline constexpr std::int64_t kLineBytes = 64;
inline constexpr std::int64_t kTilesAhead = 2;
inline constexpr std::int64_t kPanel = kTileVectors * kLanes;

// Rows of `columns` values are stored in panels of kPanel columns, so that product() reads adjacent memory.
SLUICE_INLINE std::int64_t panel_width(std::int64_t columns, std::int64_t first) {
  return columns - first < kPanel ? columns - first : kPanel;
}
SLUICE_INLINE std::int64_t panel_offset(std::int64_t rows, std::int64_t columns, std::int64_t row,
                                        std::int64_t column) {
  const std::int64_t first = column / kPanel * kPanel;
  return first * rows + row * panel_width(columns, first) + (column - first);
}

struct TileOrigin {
  std::int64_t image, row, column;

  SLUICE_INLINE TileOrigin(const WinogradMap& map, std::int64_t outputs, std::int64_t tile) {
    const std::int64_t across = (map.width + outputs - 1) / outputs, down = (map.height + outputs - 1) / outputs;
    image = tile / (across * down);
    row = tile / across % down * outputs;
    column = tile % across * outputs;
  }
};

// kSide x kSide values of a map, zeros outside. Value (i, j) of channel c is at from[i][j][step[i][j] * c].
template <int kSide, typename T>
struct TileValues {
  const T* from[kSide][kSide];
  std::int64_t step[kSide][kSide];

  SLUICE_INLINE TileValues(const WinogradMap& map, const T* data, const TileOrigin& at, int before) {
    alignas(64) static constexpr T kZeros[kLanes] = {};
    for (int i = 0; i < kSide; ++i) {
      const std::int64_t row = at.row + i - before;
      const bool has_row = row >= 0 && row < map.height;
      const std::int64_t first = ((at.image * map.height + row) * map.width + at.column - before) * map.channels;
      for (int j = 0; j < kSide; ++j) {
        const std::int64_t column = at.column + j - before;
        const bool inside = has_row && column >= 0 && column < map.width;
        from[i][j] = inside ? data + first + j * map.channels : kZeros;
        step[i][j] = inside ? 1 : 0;
      }
    }
  }
  SLUICE_INLINE Vec operator()(int i, int j, std::int64_t channel) const {
    return load(from[i][j] + step[i][j] * channel);
  }
};

template <typename T>
struct InnerValues {
  const T* from;
  std::int64_t row_step, column_step;

  SLUICE_INLINE Vec operator()(int i, int j, std::int64_t channel) const {
    return load(from + i * row_step + j * column_step + channel);
  }
};

// Calls body(values) for the square that starts `before` rows and columns before the tile.
template <int kSide, typename T, typename Body>
SLUICE_INLINE void with_values(const WinogradMap& map, const T* data, const TileOrigin& at, int before,
                               const Body& body) {
  const std::int64_t row = at.row - before, column = at.column - before;
  if (row >= 0 && column >= 0 && row + kSide <= map.height && column + kSide <= map.width) {
    const T* first = data + ((at.image * map.height + row) * map.width + column) * map.channels;
    body(InnerValues<T>{first, map.width * map.channels, map.channels});
  } else {
    body(TileValues<kSide, T>(map, data, at, before));
  }
}

// Prefetches a tile, because its rows are too short for the hardware (F(4x4), 64 channels of 32x32: 2.45 -> 1.85 ms).
template <int kOutputs, typename T>
SLUICE_INLINE void fetch_tile(const WinogradMap& map, const T* data, std::int64_t tile) {
  const TileOrigin at(map, kOutputs, tile);
  for (std::int64_t row = at.row; row < at.row + kOutputs && row < map.height; ++row) {
    const T* first = data + ((at.image * map.height + row) * map.width + at.column) * map.channels;
    const std::int64_t columns = map.width - at.column < kOutputs ? map.width - at.column : kOutputs;
    for (std::int64_t i = 0; i < columns * map.channels; i += kLineBytes / sizeof(T)) __builtin_prefetch(first + i);
  }
}

using Taps = float[9][kLanes];

SLUICE_INLINE Vec load_apart(const float* from, std::int64_t step) {
  if (step == 1) return load(from);
  Vec value{};
  for (int lane = 0; lane < kLanes; ++lane) value[lane] = from[lane * step];
  return value;
}
SLUICE_INLINE void store_apart(float* to, std::int64_t step, Vec value) {
  if (step == 1) {
    store(to, value);
  } else {
    for (int lane = 0; lane < kLanes; ++lane) to[lane * step] = value[lane];
  }
}

SLUICE_INLINE void load_taps(const WinogradWeights& shape, const float* from, std::int64_t rows, Taps* taps) {
  for (std::int64_t tap = 0; tap < 9; ++tap, from += shape.tap_stride) {
    if (shape.row_stride == 1 && rows == kLanes) {
      transpose_block(from, shape.column_stride, taps[0][tap], sizeof(Taps) / sizeof(float));
      continue;
    }
    for (std::int64_t r = 0; r < rows; ++r)
      store(taps[r][tap], load_apart(from + r * shape.row_stride, shape.column_stride));
  }
}

// Applies kTransform to the values get(i, j), along columns and then rows, and calls put(i, j, value) for each result.
template <int kFrom, int kTo, void (*kTransform)(const Vec (&)[kFrom], Vec (&)[kTo]), typename Get, typename Put>
SLUICE_INLINE void transform_square(const Get& get, const Put& put) {
  Vec half[kTo][kFrom];
#pragma GCC unroll 6
  for (int j = 0; j < kFrom; ++j) {
    Vec column[kFrom], out[kTo];
#pragma GCC unroll 6
    for (int i = 0; i < kFrom; ++i) column[i] = get(i, j);
    kTransform(column, out);
#pragma GCC unroll 6
    for (int i = 0; i < kTo; ++i) half[i][j] = out[i];
  }
#pragma GCC unroll 6
  for (int i = 0; i < kTo; ++i) {
    Vec out[kTo];
    kTransform(half[i], out);
#pragma GCC unroll 6
    for (int j = 0; j < kTo; ++j) put(i, j, out[j]);
  }
}

struct NoValues {
  SLUICE_INLINE Vec operator()(int /*i*/, int /*j*/, std::int64_t /*channel*/) const { return Vec{}; }
};

template <int kOutputs, typename T>
struct WinogradSteps {
  using Filter = WinogradFilter<kOutputs>;
  static constexpr int kSide = kOutputs + 2, kPlanes = kSide * kSide;
  static constexpr std::int64_t kDeep = kDepth<T>;

  static void input(const WinogradMap& map, const WinogradBlock& block, const T* x, Operand<T>* v) {
    const std::int64_t plane = kDeep * winograd_plane(block.tiles, map.channels / kDeep);
    T* const numbers = reinterpret_cast<T*>(v);
    for (std::int64_t t = block.begin; t < block.end; ++t) {
      if (t + kTilesAhead < block.tiles) fetch_tile<kOutputs>(map, x, block.first + t + kTilesAhead);
      with_values<kSide>(map, x, TileOrigin(map, kOutputs, block.first + t), 1, [&](const auto& value) {
        for (std::int64_t c = 0; c < map.channels; c += kLanes) {
          T* to = numbers + t * map.channels + c;
          transform_square<kSide, kSide, Filter::input>(
              [&](int i, int j) { return value(i, j, c); },
              [&](int i, int j, Vec result) { store(to + (i * kSide + j) * plane, result); });
        }
      });
    }
  }

  // Calls body(tile, its values, values of the next tile if operands are pairs) for each operand of a block.
  template <int kFrom, typename Body>
  static void for_tiles(const WinogradMap& map, const WinogradBlock& block, const T* data, int before,
                        const Body& body) {
    const auto origin = [&](std::int64_t t) { return TileOrigin(map, kOutputs, block.first + t); };
    for (std::int64_t t = block.begin; t < block.end; t += kDeep) {
      if (t + kTilesAhead < block.tiles) fetch_tile<kOutputs>(map, data, block.first + t + kTilesAhead);
      with_values<kFrom>(map, data, origin(t), before, [&](const auto& first) {
        if (kDeep == 1 || t + 1 == block.tiles) return body(t, first, NoValues{});
        if constexpr (kDeep > 1) {
          if (t + 1 + kTilesAhead < block.tiles) fetch_tile<kOutputs>(map, data, block.first + t + 1 + kTilesAhead);
          with_values<kFrom>(map, data, origin(t + 1), before, [&](const auto& second) { body(t, first, second); });
        }
      });
    }
  }

  template <int kFrom, void (*kTransform)(const Vec (&)[kFrom], Vec (&)[kSide]), typename Put>
  SLUICE_INLINE static void transform_operands(const auto& first, const auto& second, std::int64_t c, const Put& put) {
    if constexpr (kDeep == 1) {
      transform_square<kFrom, kSide, kTransform>([&](int i, int j) { return first(i, j, c); },
                                                 [&](int i, int j, Vec result) { put(i * kSide + j, result); });
    } else {
      Vec lower[kPlanes];
      transform_square<kFrom, kSide, kTransform>([&](int i, int j) { return first(i, j, c); },
                                                 [&](int i, int j, Vec result) { lower[i * kSide + j] = result; });
      transform_square<kFrom, kSide, kTransform>(
          [&](int i, int j) { return second(i, j, c); },
          [&](int i, int j, Vec result) { put(i * kSide + j, pairs_of(lower[i * kSide + j], result)); });
    }
  }

  static std::int64_t operand_rows(std::int64_t tiles) { return (tiles + kDeep - 1) / kDeep; }

  static void input_in_panels(const WinogradMap& map, const WinogradBlock& block, const T* x, Operand<T>* v) {
    const std::int64_t rows = operand_rows(block.tiles), plane = winograd_plane(rows, map.channels);
    for_tiles<kSide>(map, block, x, 1, [&](std::int64_t t, const auto& first, const auto& second) {
      for (std::int64_t c = 0; c < map.channels; c += kLanes) {
        Operand<T>* to = v + panel_offset(rows, map.channels, t / kDeep, c);
        transform_operands<kSide, Filter::input>(first, second, c,
                                                 [&](int i, auto result) { store(to + i * plane, result); });
      }
    });
  }

  static void output_gradient(const WinogradMap& map, const WinogradBlock& block, const T* grad, Operand<T>* z) {
    const std::int64_t plane = winograd_plane(operand_rows(block.tiles), map.channels);
    for_tiles<kOutputs>(map, block, grad, 0, [&](std::int64_t t, const auto& first, const auto& second) {
      for (std::int64_t c = 0; c < map.channels; c += kLanes) {
        Operand<T>* to = z + t / kDeep * map.channels + c;
        transform_operands<kOutputs, Filter::output_gradient>(
            first, second, c, [&](int i, auto result) { store(to + i * plane, result); });
      }
    });
  }

  static void output(const WinogradMap& map, const WinogradBlock& block, const float* m, const float* bias, T* y) {
    const std::int64_t plane = winograd_plane(block.tiles, map.channels);
    for (std::int64_t t = block.begin; t < block.end; ++t) {
      const TileOrigin at(map, kOutputs, block.first + t);
      const std::int64_t rows = map.height - at.row, columns = map.width - at.column;
      T* first = y + ((at.image * map.height + at.row) * map.width + at.column) * map.channels;
      for (std::int64_t c = 0; c < map.channels; c += kLanes) {
        const Vec offset = bias == nullptr ? Vec{} : load(bias + c);
        const float* from = m + t * map.channels + c;
        transform_square<kSide, kOutputs, Filter::output>(
            [&](int i, int j) { return load(from + (i * kSide + j) * plane); },
            [&](int i, int j, Vec result) {
              if (i < rows && j < columns) store(first + (i * map.width + j) * map.channels + c, result + offset);
            });
      }
    }
  }

  static void weights(const WinogradWeights& shape, const float* weight, std::int64_t begin, std::int64_t end,
                      Operand<T>* u) {
    const std::int64_t operands = shape.rows / kDeep, plane = winograd_plane(operands, shape.columns);
    for (std::int64_t first = begin; first < end; first += kLanes) {
      const std::int64_t rows = end - first < kLanes ? end - first : kLanes;
      for (std::int64_t c = 0; c < shape.columns; c += kLanes) {
        alignas(64) Taps taps[kLanes];
        load_taps(shape, weight + first * shape.row_stride + c * shape.column_stride, rows, taps);
        const auto taps_of = [&](std::int64_t r) {
          return [&shape, &taps, r](int i, int j, std::int64_t /*channel*/) {
            return load(taps[r][shape.rotated ? 8 - (3 * i + j) : 3 * i + j]);
          };
        };
        for (std::int64_t r = 0; r < rows; r += kDeep) {
          Operand<T>* to = u + panel_offset(operands, shape.columns, (first + r) / kDeep, c);
          transform_operands<3, Filter::weight>(taps_of(r), taps_of(r + kDeep - 1), 0,
                                                [&](int i, auto result) { store(to + i * plane, result); });
        }
      }
    }
  }

  static void weight_gradient(const WinogradWeights& shape, const float* grad_u, std::int64_t begin, std::int64_t end,
                              float* grad_weight) {
    const std::int64_t plane = winograd_plane(shape.rows, shape.columns);
    for (std::int64_t r = begin; r < end; ++r) {
      for (std::int64_t c = 0; c < shape.columns; c += kLanes) {
        const float* from = grad_u + r * shape.columns + c;
        float* to = grad_weight + r * shape.row_stride + c * shape.column_stride;
        transform_square<kSide, 3, Filter::weight_gradient>(
            [&](int i, int j) { return load(from + (i * kSide + j) * plane); },
            [&](int i, int j, Vec result) {
              store_apart(to + (3 * i + j) * shape.tap_stride, shape.column_stride, result);
            });
      }
    }
  }

  static void products(std::int64_t tiles, std::int64_t inner, std::int64_t columns, const Operand<T>* v,
                       const Operand<T>* u, float* m) {
    const std::int64_t operands = inner / kDeep;
    for (int i = 0; i < kPlanes; ++i) {
      const Matrix<Operand<T>> left{v + i * winograd_plane(tiles, operands), operands, 1};
      const Operand<T>* right = u + i * winograd_plane(operands, columns);
      float* to = m + i * winograd_plane(tiles, columns);
      for (std::int64_t j = 0; j < columns; j += kPanel) {
        const std::int64_t width = panel_width(columns, j);
        product(tiles, width, operands, left, right + j * operands, width, to + j, columns);
      }
    }
  }

  static std::int64_t panels(std::int64_t columns) { return (columns + kPanel - 1) / kPanel; }

  static void weight_products(const WinogradWeights& shape, std::int64_t tiles, const Operand<T>* z,
                              const Operand<T>* v, std::int64_t piece, bool add, float* grad_u) {
    const std::int64_t i = piece / panels(shape.columns);
    const std::int64_t j = piece % panels(shape.columns) * kPanel, width = panel_width(shape.columns, j);
    const std::int64_t operands = operand_rows(tiles);
    const Matrix<Operand<T>> left{z + i * winograd_plane(operands, shape.rows), 1, shape.rows};
    const Operand<T>* right = v + i * winograd_plane(operands, shape.columns) + j * operands;
    float* to = grad_u + i * winograd_plane(shape.rows, shape.columns) + j;
    if (add) {
      product<Into::kSum>(shape.rows, width, operands, left, right, width, to, shape.columns);
    } else {
      product<Into::kEmpty>(shape.rows, width, operands, left, right, width, to, shape.columns);
    }
  }

  static constexpr WinogradKernels<T> table() {
    return {kOutputs, kPlanes,         input,           input_in_panels, weights,        products,
            output,   output_gradient, weight_products, panels,          weight_gradient};
  }
};

}  // namespace sluice::nn::kernels::SLUICE_ISA
