#include "profiler/affine_fit.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/check.h"

namespace sluice::profiler {
namespace {

// Normal equations of a * u + b * v = 1 for each point, with u = 1 / time and v = size / time (relative errors).
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
  // A determinant below this share of uu * vv is a rounding error: all points have the same size.
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

template <typename At>
double relative_error(std::span<const TimeAtSize> points, const At& at) {
  double squares = 0;
  int count = 0;
  for (const TimeAtSize& point : points) {
    if (point.time_s == 0) continue;
    squares += std::pow(at(point.size) / point.time_s - 1, 2);
    ++count;
  }
  return count > 0 ? std::sqrt(squares / count) : 0;
}

}  // namespace

AffineCost fit_affine(std::span<const TimeAtSize> points) {
  check(!points.empty(), "at least one point");
  Equations sums;
  std::vector<TimeAtSize> used;
  for (const TimeAtSize& point : points) {
    check(point.size > 0 && point.time_s >= 0, "sizes above 0 and non-negative times");
    if (point.time_s == 0) continue;
    sums.add(point);
    used.push_back(point);
  }
  if (used.empty()) return {};
  AffineCost line = best_line(sums);
  line.error = relative_error(used, [&](double size) { return line.at(size); });
  return line;
}

SizedCost sized_cost(std::span<const TimeAtSize> points) {
  const AffineCost line = fit_affine(points);
  const bool takes_time = std::ranges::any_of(points, [](const TimeAtSize& point) { return point.time_s > 0; });
  SizedCost cost{.a_s = line.a_s, .b_s = line.b_s, .error = line.error};
  if (takes_time) cost.points.assign(points.begin(), points.end());
  return cost;
}

LinkCost fit_link(std::span<const TimeAtSize> points) {
  constexpr double kRange = 16;
  const TimeAtSize smallest = std::ranges::min(points, {}, &TimeAtSize::size);
  const double largest = std::ranges::max(points, {}, &TimeAtSize::size).size;
  std::vector<TimeAtSize> large;
  for (const TimeAtSize& point : points)
    if (kRange * point.size >= largest) large.push_back(point);
  const double per_byte = (large.size() > 1 ? fit_affine(large) : fit_affine(points)).b_s;
  LinkCost link{.latency_s = std::max(0.0, smallest.time_s - per_byte * smallest.size)};
  if (per_byte > 0) link.bytes_per_s = 1 / per_byte;
  link.error = relative_error(points, [&](double size) { return link.at(size); });
  return link;
}

}  // namespace sluice::profiler
