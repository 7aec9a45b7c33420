// sum_in_float64: sums over numbers in memory. The order depends on their count alone.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "core/divided_up.h"

namespace sluice {

template <typename Number, typename Term>
[[nodiscard]] double sum_in_float64(const Number* numbers, std::int64_t count, Term term) {
  constexpr std::int64_t kLanes = 16;  // sums side by side, for which the compiler has registers
  std::array<double, kLanes> sums{};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (std::int64_t lane = 0; lane < kLanes; ++lane) sums[lane] += term(static_cast<double>(numbers[i + lane]));
  double sum = 0;
  for (; i < count; ++i) sum += term(static_cast<double>(numbers[i]));
  for (const double of_lane : sums) sum += of_lane;
  return sum;
}

// The same in blocks of a fixed size, so that the bits do not depend on the number of threads. parallel_for: as
// at::parallel_for(begin, end, grain, work(begin, end)).
template <typename Number, typename Term, typename ParallelFor>
[[nodiscard]] double sum_of_blocks(const Number* numbers, std::int64_t count, Term term,
                                   const ParallelFor& parallel_for) {
  constexpr std::int64_t kBlock = 1 << 16, kBlocksOfThread = 8;
  std::vector<double> sums(static_cast<std::size_t>(divided_up(count, kBlock)));
  parallel_for(std::int64_t{0}, std::ssize(sums), kBlocksOfThread, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b)
      sums[static_cast<std::size_t>(b)] =
          sum_in_float64(numbers + b * kBlock, std::min(kBlock, count - b * kBlock), term);
  });
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

}  // namespace sluice
