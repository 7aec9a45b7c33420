// median: the median of measurements, for an even count the mean of the middle two, and their spread.
#pragma once

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include "core/check.h"

namespace sluice {

[[nodiscard]] inline double median(std::vector<double> values) {
  check(!values.empty(), "at least one value for a median");
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// For an even count, the upper of the middle two: a value that was measured.
template <typename T>
[[nodiscard]] T upper_median(std::vector<T> values) {
  check(!values.empty(), "at least one value for a median");
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::ranges::nth_element(values, middle);
  return *middle;
}

// Robust standard deviation: 1.4826 times the median distance from the median.
[[nodiscard]] inline double median_deviation(const std::vector<double>& values) {
  const double middle = median(values);
  std::vector<double> distances;
  for (const double value : values) distances.push_back(std::abs(value - middle));
  return 1.4826 * median(distances);
}

}  // namespace sluice
