// median: the median of measurements and their spread. For an even count, the median is the mean of the middle two.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/check.h"

namespace sluice {

[[nodiscard]] inline double median(std::vector<double> values) {
  check(!values.empty(), "at least one value for a median");
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// Robust estimate of the standard deviation: 1.4826 times the median distance from the median. It equals the standard
// deviation for normally distributed values, and one outlier does not change it much.
[[nodiscard]] inline double median_deviation(const std::vector<double>& values) {
  const double middle = median(values);
  std::vector<double> distances;
  for (const double value : values) distances.push_back(std::abs(value - middle));
  return 1.4826 * median(distances);
}

}  // namespace sluice
