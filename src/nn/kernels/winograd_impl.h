// winograd_impl: the steps of a 3x3 convolution by Winograd's minimal filtering F(2x2, 3x3) for one instruction set
// (what each computes: kernels.h). Every lane of a vector is a channel, so the transforms need no shuffles: they are
// sums and differences of 16 vectors. The matrices, from Lavin and Gray, "Fast algorithms for convolutional neural
// networks" (2016), section 4.1:
//   B' = 1 0 -1  0     G = 1    0   0      A' = 1 1  1  0
//        0 1  1  0         1/2  1/2 1/2         0 1 -1 -1
//        0 -1 1  0         1/2 -1/2 1/2
//        0 1  0 -1         0    0   1
#pragma once

#include "nn/kernels/kernels.h"
#include "nn/kernels/product_impl.h"
#include "nn/kernels/simd.h"

namespace sluice::nn::kernels::SLUICE_ISA {

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

// Where a tile lies: its 2x2 outputs start at (row, column) of an image.
struct TileOrigin {
  std::int64_t image, row, column;

  SLUICE_INLINE TileOrigin(const WinogradMap& map, std::int64_t tile) {
    const std::int64_t across = (map.width + 1) / 2, down = (map.height + 1) / 2;
    image = tile / (across * down);
    row = tile / across % down * 2;
    column = tile % across * 2;
  }
};

// The kSide x kSide values from (first row of the tile - before, first column - before) on: where they lie, and zeros
// outside of the map. Value i at channel c is from[i][step[i] * c].
template <int kSide>
struct TileValues {
  const float* from[kSide * kSide];
  std::int64_t step[kSide * kSide];

  SLUICE_INLINE TileValues(const WinogradMap& map, const float* data, std::int64_t tile, int before) {
    alignas(64) static constexpr float kZeros[kLanes] = {};
    const TileOrigin at(map, tile);
    for (int i = 0; i < kSide * kSide; ++i) {
      const std::int64_t row = at.row + i / kSide - before, column = at.column + i % kSide - before;
      const bool inside = row >= 0 && row < map.height && column >= 0 && column < map.width;
      from[i] = inside ? data + ((at.image * map.height + row) * map.width + column) * map.channels : kZeros;
      step[i] = inside ? 1 : 0;
    }
  }
  SLUICE_INLINE Vec operator()(int i, std::int64_t channel) const { return load(from[i] + step[i] * channel); }
};

SLUICE_INLINE void apply_b(Vec& d0, Vec& d1, Vec& d2, Vec& d3) {
  const Vec first = d0 - d2, sum = d1 + d2, difference = d2 - d1, last = d1 - d3;
  d0 = first, d1 = sum, d2 = difference, d3 = last;
}

template <bool kInPanels>
static void winograd_input(const WinogradMap& map, const WinogradBlock& block, const float* x, float* v) {
  const std::int64_t plane = winograd_plane(block.tiles, map.channels);
  for (std::int64_t t = block.begin; t < block.end; ++t) {
    const TileValues<4> value(map, x, block.first + t, 1);
    for (std::int64_t c = 0; c < map.channels; c += kLanes) {
      Vec d[16];
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) d[i] = value(i, c);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) apply_b(d[j], d[4 + j], d[8 + j], d[12 + j]);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) apply_b(d[4 * i], d[4 * i + 1], d[4 * i + 2], d[4 * i + 3]);
      float* to = v + (kInPanels ? panel_offset(block.tiles, map.channels, t, c) : t * map.channels + c);
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) store(to + i * plane, d[i]);
    }
  }
}

static void winograd_output(const WinogradMap& map, const WinogradBlock& block, const float* m, const float* bias,
                            float* y) {
  const std::int64_t plane = winograd_plane(block.tiles, map.channels);
  for (std::int64_t t = block.begin; t < block.end; ++t) {
    const TileOrigin at(map, block.first + t);
    const bool has_right = at.column + 1 < map.width, has_below = at.row + 1 < map.height;
    float* above = y + ((at.image * map.height + at.row) * map.width + at.column) * map.channels;
    float* below = above + map.width * map.channels;
    const float* from = m + t * map.channels;
    for (std::int64_t c = 0; c < map.channels; c += kLanes) {
      Vec top[4], bottom[4];
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        const Vec m0 = load(from + j * plane + c), m1 = load(from + (4 + j) * plane + c);
        const Vec m2 = load(from + (8 + j) * plane + c), m3 = load(from + (12 + j) * plane + c);
        top[j] = m0 + m1 + m2;
        bottom[j] = m1 - m2 - m3;
      }
      const Vec offset = bias == nullptr ? Vec{} : load(bias + c);
      store(above + c, top[0] + top[1] + top[2] + offset);
      if (has_right) store(above + map.channels + c, top[1] - top[2] - top[3] + offset);
      if (has_below) store(below + c, bottom[0] + bottom[1] + bottom[2] + offset);
      if (has_below && has_right) store(below + map.channels + c, bottom[1] - bottom[2] - bottom[3] + offset);
    }
  }
}

static void winograd_output_gradient(const WinogradMap& map, const WinogradBlock& block, const float* grad, float* z) {
  const std::int64_t plane = winograd_plane(block.tiles, map.channels);
  for (std::int64_t t = block.begin; t < block.end; ++t) {
    const TileValues<2> value(map, grad, block.first + t, 0);
    for (std::int64_t c = 0; c < map.channels; c += kLanes) {
      const Vec y00 = value(0, c), y01 = value(1, c), y10 = value(2, c), y11 = value(3, c);
      const Vec left[4] = {y00, y00 + y10, y00 - y10, -y10};
      const Vec right[4] = {y01, y01 + y11, y01 - y11, -y11};
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        float* to = z + t * map.channels + c + 4 * i * plane;
        store(to, left[i]);
        store(to + plane, left[i] + right[i]);
        store(to + 2 * plane, left[i] - right[i]);
        store(to + 3 * plane, -right[i]);
      }
    }
  }
}

// out = G (g0 g1 g2)'
SLUICE_INLINE void apply_g(Vec g0, Vec g1, Vec g2, Vec* out, int stride) {
  const Vec ends = 0.5F * (g0 + g2), middle = 0.5F * g1;
  out[0] = g0;
  out[stride] = ends + middle;
  out[2 * stride] = ends - middle;
  out[3 * stride] = g2;
}

// Plane i of a weight is plane rotated(i) of the weight rotated by half a turn: G reversed from left to right is G with
// its first and last row exchanged.
SLUICE_INLINE int rotated(int i) {
  constexpr int kReversed[4] = {3, 1, 2, 0};
  return 4 * kReversed[i / 4] + kReversed[i % 4];
}

static void winograd_weights(const WinogradWeights& shape, const float* weight, std::int64_t begin, std::int64_t end,
                             float* u) {
  const std::int64_t plane = winograd_plane(shape.rows, shape.columns);
  for (std::int64_t r = begin; r < end; ++r) {
    for (std::int64_t c = 0; c < shape.columns; c += kLanes) {
      const float* from = weight + r * shape.row_stride + c * shape.column_stride;
      float taps[9][kLanes];
      for (int lane = 0; lane < kLanes; ++lane) {
#pragma GCC unroll 9
        for (int tap = 0; tap < 9; ++tap) taps[tap][lane] = from[lane * shape.column_stride + tap * shape.tap_stride];
      }
      Vec half[12], whole[16];
#pragma GCC unroll 3
      for (int j = 0; j < 3; ++j) apply_g(load(taps[j]), load(taps[3 + j]), load(taps[6 + j]), half + j, 3);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) apply_g(half[3 * i], half[3 * i + 1], half[3 * i + 2], whole + 4 * i, 1);
      float* to = u + panel_offset(shape.rows, shape.columns, r, c);
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) store(to + (shape.rotated ? rotated(i) : i) * plane, whole[i]);
    }
  }
}

// out = G' (u0 u1 u2 u3)'
SLUICE_INLINE void apply_g_transposed(Vec u0, Vec u1, Vec u2, Vec u3, Vec* out, int stride) {
  const Vec sum = 0.5F * (u1 + u2);
  out[0] = u0 + sum;
  out[stride] = 0.5F * (u1 - u2);
  out[2 * stride] = sum + u3;
}

static void winograd_weight_gradient(const WinogradWeights& shape, const float* grad_u, std::int64_t begin,
                                     std::int64_t end, float* grad_weight) {
  const std::int64_t plane = winograd_plane(shape.rows, shape.columns);
  for (std::int64_t r = begin; r < end; ++r) {
    for (std::int64_t c = 0; c < shape.columns; c += kLanes) {
      const float* from = grad_u + r * shape.columns + c;
      Vec u[16], half[12], whole[9];
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) u[i] = load(from + i * plane);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) apply_g_transposed(u[j], u[4 + j], u[8 + j], u[12 + j], half + j, 4);
#pragma GCC unroll 3
      for (int i = 0; i < 3; ++i) {
        apply_g_transposed(half[4 * i], half[4 * i + 1], half[4 * i + 2], half[4 * i + 3], whole + 3 * i, 1);
      }
      float* to = grad_weight + r * shape.row_stride + c * shape.column_stride;
      for (int lane = 0; lane < kLanes; ++lane) {
#pragma GCC unroll 9
        for (int tap = 0; tap < 9; ++tap) to[lane * shape.column_stride + tap * shape.tap_stride] = whole[tap][lane];
      }
    }
  }
}

static void winograd_products(std::int64_t tiles, std::int64_t inner, std::int64_t columns, const float* v,
                              const float* u, float* m) {
  for (int i = 0; i < 16; ++i) {
    const Matrix left{v + i * winograd_plane(tiles, inner), inner, 1};
    const float* right = u + i * winograd_plane(inner, columns);
    float* to = m + i * winograd_plane(tiles, columns);
    for (std::int64_t j = 0; j < columns; j += kPanel) {
      const std::int64_t width = panel_width(columns, j);
      product(tiles, width, inner, left, right + j * inner, width, to + j, columns);
    }
  }
}

static std::int64_t winograd_panels(std::int64_t columns) { return (columns + kPanel - 1) / kPanel; }

static void winograd_weight_products(const WinogradWeights& shape, std::int64_t tiles, const float* z, const float* v,
                                     std::int64_t piece, bool add, float* grad_u) {
  const std::int64_t i = piece / winograd_panels(shape.columns);
  const std::int64_t j = piece % winograd_panels(shape.columns) * kPanel, width = panel_width(shape.columns, j);
  const Matrix left{z + i * winograd_plane(tiles, shape.rows), 1, shape.rows};
  const float* right = v + i * winograd_plane(tiles, shape.columns) + j * tiles;
  float* to = grad_u + i * winograd_plane(shape.rows, shape.columns) + j;
  if (add) {
    product<Into::kSum>(shape.rows, width, tiles, left, right, width, to, shape.columns);
  } else {
    product<Into::kEmpty>(shape.rows, width, tiles, left, right, width, to, shape.columns);
  }
}

}  // namespace sluice::nn::kernels::SLUICE_ISA
