// sum_in_float64: sums over numbers in memory. The order depends on their count alone.
#pragma once

#include <array>
#include <cstdint>

namespace sluice {

// The sum of term(number) over `count` numbers, each made float64 first.
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

}  // namespace sluice
