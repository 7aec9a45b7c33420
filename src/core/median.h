// median: the middle of some measurements; of an even number of them, the mean of the two in the middle.
#pragma once

#include <algorithm>
#include <vector>

#include "core/check.h"

namespace sluice {

[[nodiscard]] inline double median(std::vector<double> values) {
  check(!values.empty(), "the median of nothing was asked for");
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace sluice
