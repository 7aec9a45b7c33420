// winograd_impl: the steps of a 3x3 convolution by Winograd's minimal filtering F(2x2, 3x3) or F(4x4, 3x3) for one
// instruction set (what each computes: kernels.h). Every lane of a vector is a channel, so the transforms need no
// shuffles: they are sums and differences of vectors, along the columns of a tile and then along its rows.
#pragma once

#include "nn/kernels/kernels.h"
#include "nn/kernels/product_impl.h"
#include "nn/kernels/simd.h"
#include "nn/kernels/transpose_impl.h"
#include "nn/kernels/winograd_filters.h"

namespace sluice::nn::kernels::SLUICE_ISA {

inline constexpr std::int64_t kFloatsOfLine = 16;  // of the cache
inline constexpr std::int64_t kTilesAhead = 2;
inline constexpr std::int64_t kPanel = kTileVectors * kLanes;  // columns of one strip of product()

// Rows of `columns` values are stored in panels of kPanel columns, one panel after the other, so that what product()
// reads for one strip of its answer is adjacent in memory (rows 2 KiB apart fall into few sets of the cache).
SLUICE_INLINE std::int64_t panel_width(std::int64_t columns, std::int64_t first) {
  return columns - first < kPanel ? columns - first : kPanel;
}
SLUICE_INLINE std::int64_t panel_offset(std::int64_t rows, std::int64_t columns, std::int64_t row,
                                        std::int64_t column) {
  const std::int64_t first = column / kPanel * kPanel;
  return first * rows + row * panel_width(columns, first) + (column - first);
}

// Where a tile lies: its outputs start at (row, column) of an image.
struct TileOrigin {
  std::int64_t image, row, column;

  SLUICE_INLINE TileOrigin(const WinogradMap& map, std::int64_t outputs, std::int64_t tile) {
    const std::int64_t across = (map.width + outputs - 1) / outputs, down = (map.height + outputs - 1) / outputs;
    image = tile / (across * down);
    row = tile / across % down * outputs;
    column = tile % across * outputs;
  }
};

// A square of kSide x kSide values of a map: where they lie, and zeros outside of the map. Value (i, j) at channel c is
// from[i][j][step[i][j] * c].
template <int kSide>
struct TileValues {
  const float* from[kSide][kSide];
  std::int64_t step[kSide][kSide];

  SLUICE_INLINE TileValues(const WinogradMap& map, const float* data, const TileOrigin& at, int before) {
    alignas(64) static constexpr float kZeros[kLanes] = {};
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

// The same, all of them on the map.
struct InnerValues {
  const float* from;
  std::int64_t row_step, column_step;

  SLUICE_INLINE Vec operator()(int i, int j, std::int64_t channel) const {
    return load(from + i * row_step + j * column_step + channel);
  }
};

// body(values) with those of the square that starts `before` rows and columns before the tile.
template <int kSide, typename Body>
SLUICE_INLINE void with_values(const WinogradMap& map, const float* data, const TileOrigin& at, int before,
                               const Body& body) {
  const std::int64_t row = at.row - before, column = at.column - before;
  if (row >= 0 && column >= 0 && row + kSide <= map.height && column + kSide <= map.width) {
    const float* first = data + ((at.image * map.height + row) * map.width + column) * map.channels;
    body(InnerValues{first, map.width * map.channels, map.channels});
  } else {
    body(TileValues<kSide>(map, data, at, before));
  }
}

// What lies on the map of tile `tile` itself will be read soon: its rows are too short for the processor to foresee it
// (input transform of F(4x4), 64 channels of 32x32: 2.45 -> 1.85 ms).
template <int kOutputs>
SLUICE_INLINE void fetch_tile(const WinogradMap& map, const float* data, std::int64_t tile) {
  const TileOrigin at(map, kOutputs, tile);
  for (std::int64_t row = at.row; row < at.row + kOutputs && row < map.height; ++row) {
    const float* first = data + ((at.image * map.height + row) * map.width + at.column) * map.channels;
    const std::int64_t columns = map.width - at.column < kOutputs ? map.width - at.column : kOutputs;
    for (std::int64_t i = 0; i < columns * map.channels; i += kFloatsOfLine) __builtin_prefetch(first + i);
  }
}

// The nine taps of kLanes columns of a weight.
using Taps = float[9][kLanes];

// Values `step` apart.
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

// Of the `rows` (up to kLanes) rows and the kLanes columns from `from` on.
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

// put(i, j, .) of the kTo x kTo values that kTransform, along columns and then along rows, makes of get(i, j).
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

// The steps of F(kOutputs x kOutputs, 3x3).
template <int kOutputs>
struct WinogradSteps {
  using Filter = WinogradFilter<kOutputs>;
  static constexpr int kSide = kOutputs + 2, kPlanes = kSide * kSide;

  template <bool kInPanels>
  static void input(const WinogradMap& map, const WinogradBlock& block, const float* x, float* v) {
    const std::int64_t plane = winograd_plane(block.tiles, map.channels);
    for (std::int64_t t = block.begin; t < block.end; ++t) {
      if (t + kTilesAhead < block.tiles) fetch_tile<kOutputs>(map, x, block.first + t + kTilesAhead);
      with_values<kSide>(map, x, TileOrigin(map, kOutputs, block.first + t), 1, [&](const auto& value) {
        for (std::int64_t c = 0; c < map.channels; c += kLanes) {
          float* to = v + (kInPanels ? panel_offset(block.tiles, map.channels, t, c) : t * map.channels + c);
          transform_square<kSide, kSide, Filter::input>(
              [&](int i, int j) { return value(i, j, c); },
              [&](int i, int j, Vec result) { store(to + (i * kSide + j) * plane, result); });
        }
      });
    }
  }

  static void output(const WinogradMap& map, const WinogradBlock& block, const float* m, const float* bias, float* y) {
    const std::int64_t plane = winograd_plane(block.tiles, map.channels);
    for (std::int64_t t = block.begin; t < block.end; ++t) {
      const TileOrigin at(map, kOutputs, block.first + t);
      const std::int64_t rows = map.height - at.row, columns = map.width - at.column;
      float* first = y + ((at.image * map.height + at.row) * map.width + at.column) * map.channels;
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

  static void output_gradient(const WinogradMap& map, const WinogradBlock& block, const float* grad, float* z) {
    const std::int64_t plane = winograd_plane(block.tiles, map.channels);
    for (std::int64_t t = block.begin; t < block.end; ++t) {
      if (t + kTilesAhead < block.tiles) fetch_tile<kOutputs>(map, grad, block.first + t + kTilesAhead);
      with_values<kOutputs>(map, grad, TileOrigin(map, kOutputs, block.first + t), 0, [&](const auto& value) {
        for (std::int64_t c = 0; c < map.channels; c += kLanes) {
          float* to = z + t * map.channels + c;
          transform_square<kOutputs, kSide, Filter::output_gradient>(
              [&](int i, int j) { return value(i, j, c); },
              [&](int i, int j, Vec result) { store(to + (i * kSide + j) * plane, result); });
        }
      });
    }
  }

  static void weights(const WinogradWeights& shape, const float* weight, std::int64_t begin, std::int64_t end,
                      float* u) {
    const std::int64_t plane = winograd_plane(shape.rows, shape.columns);
    for (std::int64_t first = begin; first < end; first += kLanes) {
      const std::int64_t rows = end - first < kLanes ? end - first : kLanes;
      for (std::int64_t c = 0; c < shape.columns; c += kLanes) {
        alignas(64) Taps taps[kLanes];
        load_taps(shape, weight + first * shape.row_stride + c * shape.column_stride, rows, taps);
        for (std::int64_t r = 0; r < rows; ++r) {
          float* to = u + panel_offset(shape.rows, shape.columns, first + r, c);
          transform_square<3, kSide, Filter::weight>(
              [&](int i, int j) { return load(taps[r][shape.rotated ? 8 - (3 * i + j) : 3 * i + j]); },
              [&](int i, int j, Vec result) { store(to + (i * kSide + j) * plane, result); });
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

  static void products(std::int64_t tiles, std::int64_t inner, std::int64_t columns, const float* v, const float* u,
                       float* m) {
    for (int i = 0; i < kPlanes; ++i) {
      const Matrix left{v + i * winograd_plane(tiles, inner), inner, 1};
      const float* right = u + i * winograd_plane(inner, columns);
      float* to = m + i * winograd_plane(tiles, columns);
      for (std::int64_t j = 0; j < columns; j += kPanel) {
        const std::int64_t width = panel_width(columns, j);
        product(tiles, width, inner, left, right + j * inner, width, to + j, columns);
      }
    }
  }

  static std::int64_t panels(std::int64_t columns) { return (columns + kPanel - 1) / kPanel; }

  static void weight_products(const WinogradWeights& shape, std::int64_t tiles, const float* z, const float* v,
                              std::int64_t piece, bool add, float* grad_u) {
    const std::int64_t i = piece / panels(shape.columns);
    const std::int64_t j = piece % panels(shape.columns) * kPanel, width = panel_width(shape.columns, j);
    const Matrix left{z + i * winograd_plane(tiles, shape.rows), 1, shape.rows};
    const float* right = v + i * winograd_plane(tiles, shape.columns) + j * tiles;
    float* to = grad_u + i * winograd_plane(shape.rows, shape.columns) + j;
    if (add) {
      product<Into::kSum>(shape.rows, width, tiles, left, right, width, to, shape.columns);
    } else {
      product<Into::kEmpty>(shape.rows, width, tiles, left, right, width, to, shape.columns);
    }
  }

  static constexpr WinogradKernels table() {
    return {kOutputs, kPlanes,         input<false>,    input<true>, weights,        products,
            output,   output_gradient, weight_products, panels,      weight_gradient};
  }
};

}  // namespace sluice::nn::kernels::SLUICE_ISA
