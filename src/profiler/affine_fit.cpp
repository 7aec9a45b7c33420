#include "profiler/affine_fit.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/check.h"

namespace sluice::profiler {
namespace {

// In relative terms every point asks for a * u + b * v = 1, with u = 1 / time and v = size / time.
struct Equations {
  double uu = 0, uv = 0, vv = 0, u = 0, v = 0;
  int count = 0;

  void add(const TimeAtSize& point) {
    const double of_a = 1 / point.time_s, of_b = point.size / point.time_s;
    uu += of_a * of_a, uv += of_a * of_b, vv += of_b * of_b;
    u += of_a, v += of_b;
    ++count;
  }
  [[nodiscard]] double squares(double a, double b) const {
    return a * a * uu + 2 * a * b * uv + b * b * vv - 2 * a * u - 2 * b * v + count;
  }
};

AffineCost best_line(const Equations& sums) {
  // Less than this share of uu * vv is rounding: there is one size only.
  constexpr double kSingular = 1e-12;
  const AffineCost through_zero{.b_s = sums.v / sums.vv}, constant{.a_s = sums.u / sums.uu};
  const double determinant = sums.uu * sums.vv - sums.uv * sums.uv;
  if (determinant <= kSingular * sums.uu * sums.vv) return through_zero;
  const AffineCost free{.a_s = (sums.u * sums.vv - sums.v * sums.uv) / determinant,
                        .b_s = (sums.v * sums.uu - sums.u * sums.uv) / determinant};
  if (free.a_s >= 0 && free.b_s >= 0) return free;
  const bool rises = sums.squares(0, through_zero.b_s) <= sums.squares(constant.a_s, 0);
  return rises ? through_zero : constant;
}

}  // namespace

AffineCost fit_affine(std::span<const TimeAtSize> points) {
  check(!points.empty(), "a fit needs at least one point");
  Equations sums;
  std::vector<TimeAtSize> used;
  for (const TimeAtSize& point : points) {
    check(point.size > 0 && point.time_s >= 0, "a fit needs sizes above zero and times that are not negative");
    if (point.time_s == 0) continue;
    sums.add(point);
    used.push_back(point);
  }
  if (used.empty()) return {};
  AffineCost line = best_line(sums);
  double squares = 0;
  for (const TimeAtSize& point : used) squares += std::pow(line.at(point.size) / point.time_s - 1, 2);
  line.error = std::sqrt(squares / static_cast<double>(used.size()));
  return line;
}

SizedCost sized_cost(std::span<const TimeAtSize> points) {
  const AffineCost line = fit_affine(points);
  const bool takes_time = std::ranges::any_of(points, [](const TimeAtSize& point) { return point.time_s > 0; });
  SizedCost cost{.a_s = line.a_s, .b_s = line.b_s, .error = line.error};
  if (takes_time) cost.points.assign(points.begin(), points.end());
  return cost;
}

}  // namespace sluice::profiler
