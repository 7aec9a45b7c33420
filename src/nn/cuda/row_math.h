// row_math: sums over rows and columns in an order that depends only on the shape, so that results repeat bit for bit.
// Row sums: a group of lanes shares the row and each lane adds up its part in order. Then the 32 lanes of a warp are
// added pairwise (lane i and lane i ^ 16, ^ 8, ^ 4, ^ 2, ^ 1), then the warps in order. Column sums: the rows are split
// into pieces. Within a piece, kPieceLanes lanes take turns; then lanes and pieces are added in the same way.
#pragma once

#include <cstdint>

#include "nn/cuda/device_code.h"

namespace sluice::nn::gpu {

constexpr int kWarp = 32;
constexpr int kPieceLanes = 8;

struct Matrix {
  std::int64_t rows, columns;
};

struct Lane {
  int index, count;  // index in the group; lanes of the group
};

// Calls body(first) for each of the lane's runs of kRun columns. Requires: columns is a multiple of kRun.
template <int kRun, typename Body>
SLUICE_DEVICE inline void for_runs_of_lane(Lane lane, std::int64_t columns, const Body& body) {
  const std::int64_t step = static_cast<std::int64_t>(lane.count) * kRun;
  for (std::int64_t first = static_cast<std::int64_t>(lane.index) * kRun; first < columns; first += step) body(first);
}

// A lane's part of a sum over a row. terms(first, values) writes the terms of columns [first, first + kRun) to values.
template <int kRun, typename Terms>
SLUICE_DEVICE inline float lane_sum(Lane lane, std::int64_t columns, const Terms& terms) {
  float sum = 0;
  for_runs_of_lane<kRun>(lane, columns, [&](std::int64_t first) {
    float values[kRun];
    terms(first, values);
    for (int j = 0; j < kRun; ++j) sum += values[j];
  });
  return sum;
}

// The pieces of rows for column sums: few enough for one block to add up, with enough rows to keep a block busy.
struct Pieces {
  std::int64_t rows, count;  // rows per piece; number of pieces
};
constexpr Pieces pieces_of(std::int64_t rows) {
  constexpr std::int64_t kFewestRows = 64, kMostPieces = 2048;
  const std::int64_t least = (rows + kMostPieces - 1) / kMostPieces;
  const std::int64_t of_piece = least < kFewestRows ? kFewestRows : least;
  return {of_piece, (rows + of_piece - 1) / of_piece};
}

}  // namespace sluice::nn::gpu
