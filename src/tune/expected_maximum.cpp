#include "tune/expected_maximum.h"

#include <cmath>
#include <numbers>

#include "core/check.h"

namespace sluice::tune {

// The mean of the largest order statistic, with density n phi(x) Phi(x)^(n-1). The trapezoid rule is exact to rounding
// because the density is smooth and vanishes at both ends.
double expected_maximum(int count) {
  check(count >= 1, "a count of at least 1");
  if (count == 1) return 0;
  constexpr double kEnd = 12;
  constexpr int kStepsPerUnit = 64;
  double sum = 0;
  for (int i = -static_cast<int>(kEnd) * kStepsPerUnit; i <= kEnd * kStepsPerUnit; ++i) {
    const double x = static_cast<double>(i) / kStepsPerUnit;
    const double beyond = 0.5 * std::erfc(x / std::numbers::sqrt2);
    sum += x * count * std::exp(-x * x / 2 + (count - 1) * std::log1p(-beyond));
  }
  return sum / kStepsPerUnit / std::sqrt(2 * std::numbers::pi);
}

}  // namespace sluice::tune
