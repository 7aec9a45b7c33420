// median: the middle of some measurements; of an even number of them, the mean of the two in the middle. And how far
// they lie apart, by medians as well.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/check.h"

namespace sluice {

[[nodiscard]] inline double median(std::vector<double> values) {
  check(!values.empty(), "the median of nothing was asked for");
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// The standard deviation, if they are normally distributed: 1.48 times the median distance to their median. One that
// was disturbed does not move it.
[[nodiscard]] inline double median_deviation(const std::vector<double>& values) {
  const double middle = median(values);
  std::vector<double> distances;
  for (const double value : values) distances.push_back(std::abs(value - middle));
  return 1.4826 * median(distances);
}

}  // namespace sluice
