// row_math: the sums over a row and over columns that GPU kernels take, in an order that depends on the shape alone, so
// that repeats are equal bit for bit. A row is summed by a group of lanes: each adds up its share in order; then the 32
// lanes of a warp are added pairwise (lane i and lane i ^ 16, ^ 8, ^ 4, ^ 2, ^ 1), then the warps in order. A column is
// summed in pieces of rows, within a piece by kPieceLanes lanes that take turns, then the pieces likewise.
#pragma once

#include <cstdint>

#include "nn/cuda/device_code.h"

namespace sluice::nn::gpu {

constexpr int kWarp = 32;
constexpr int kPieceLanes = 8;

// A matrix of rows whose numbers follow each other.
struct Matrix {
  std::int64_t rows, columns;
};

struct Lane {
  int index, count;  // of the group
};

// body(first) for the lane's runs of kRun columns, of which `columns` is a multiple.
template <int kRun, typename Body>
SLUICE_DEVICE inline void for_runs_of_lane(Lane lane, std::int64_t columns, const Body& body) {
  const std::int64_t step = static_cast<std::int64_t>(lane.count) * kRun;
  for (std::int64_t first = static_cast<std::int64_t>(lane.index) * kRun; first < columns; first += step) body(first);
}

// A lane's share of a sum over a row: terms(first, values) gives those of the columns [first, first + kRun).
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

// The pieces that columns are summed in: few enough to be added up by one block, of rows enough to keep one busy.
struct Pieces {
  std::int64_t rows, count;  // of a piece; of them
};
constexpr Pieces pieces_of(std::int64_t rows) {
  constexpr std::int64_t kFewestRows = 64, kMostPieces = 2048;
  const std::int64_t least = (rows + kMostPieces - 1) / kMostPieces;
  const std::int64_t of_piece = least < kFewestRows ? kFewestRows : least;
  return {of_piece, (rows + of_piece - 1) / of_piece};
}

}  // namespace sluice::nn::gpu
