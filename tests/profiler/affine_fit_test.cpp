#include "profiler/affine_fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/error.h"
#include "core/rng.h"

namespace sluice::profiler {
namespace {

using Points = std::vector<TimeAtSize>;

Points on_line(double a, double b, const std::vector<double>& sizes) {
  Points points;
  for (const double size : sizes) points.push_back({size, a + b * size});
  return points;
}

double loss(double a, double b, const Points& points) {
  double sum = 0;
  for (const TimeAtSize& point : points) sum += std::pow((a + b * point.size - point.time_s) / point.time_s, 2);
  return sum;
}

double between(RngStream& rng, double low, double high) { return low * std::pow(high / low, rng.uniform()); }

TEST(FitAffine, FindsPlantedLines) {
  RngStream rng(1);
  for (int round = 0; round < 500; ++round) {
    const double a = rng.below(4) == 0 ? 0 : between(rng, 1e-7, 1e-2), b = between(rng, 1e-9, 1e-1);
    const AffineCost line = fit_affine(on_line(a, b, {1, 2, 4, 8, 16, 32, 64, 100}));
    const double scale = a + b;
    EXPECT_NEAR(line.a_s, a, 1e-9 * scale) << a << " + " << b << " n";
    EXPECT_NEAR(line.b_s, b, 1e-9 * scale) << a << " + " << b << " n";
    EXPECT_LT(line.error, 1e-9);
  }
}

TEST(FitAffine, FindsLinesOverBytesToo) {
  const AffineCost line = fit_affine(on_line(20e-6, 1e-10, {4096, 65'536, 1'048'576, 16'777'216}));
  EXPECT_NEAR(line.a_s, 20e-6, 1e-12);
  EXPECT_NEAR(line.b_s, 1e-10, 1e-18);
}

// The weights make one relative deviation count as much at 1 as at 1000.
TEST(FitAffine, ClosedFormOfTwoTimesAtOneSize) {
  // Minimum of (b/1 - 1)^2 + (b/3 - 1)^2: b = (1 + 1/3) / (1 + 1/9) = 1.2.
  const AffineCost line = fit_affine(Points{{1, 1}, {1, 3}});
  EXPECT_EQ(line.a_s, 0);
  EXPECT_NEAR(line.b_s, 1.2, 1e-12);
  EXPECT_NEAR(line.error, std::sqrt((0.2 * 0.2 + 0.6 * 0.6) / 2), 1e-12);
}

TEST(FitAffine, FallingTimesAreConstant) {
  // Minimum of (a/2 - 1)^2 + (a/1 - 1)^2: a = (1/2 + 1) / (1/4 + 1) = 1.2.
  const AffineCost line = fit_affine(Points{{1, 2}, {2, 1}});
  EXPECT_NEAR(line.a_s, 1.2, 1e-12);
  EXPECT_EQ(line.b_s, 0);
}

TEST(FitAffine, TimesThatGrowFasterThanTheSizeGoThroughZero) {
  const AffineCost line = fit_affine(Points{{1, 1}, {2, 4}});
  // Minimum of (b - 1)^2 + (2b/4 - 1)^2: b = (1 + 1/2) / (1 + 1/4) = 1.2.
  EXPECT_EQ(line.a_s, 0);
  EXPECT_NEAR(line.b_s, 1.2, 1e-12);
}

TEST(FitAffine, NoPointOfAGridIsBetter) {
  RngStream rng(2);
  for (int round = 0; round < 60; ++round) {
    Points points;
    const int count = 1 + static_cast<int>(rng.below(6));
    for (int i = 0; i < count; ++i) points.push_back({std::pow(2.0, rng.below(8)), between(rng, 0.1, 10)});
    const AffineCost line = fit_affine(points);
    EXPECT_GE(line.a_s, 0);
    EXPECT_GE(line.b_s, 0);
    const double found = loss(line.a_s, line.b_s, points);
    EXPECT_NEAR(line.error, std::sqrt(found / count), 1e-9);
    for (int i = 0; i <= 200; ++i) {
      for (int j = 0; j <= 200; ++j) {
        const double a = 12.0 * i / 200, b = 12.0 * std::pow(j / 200.0, 3);
        ASSERT_LE(found, loss(a, b, points) + 1e-9) << "a " << a << ", b " << b;
      }
    }
  }
}

TEST(FitAffine, NoStepFromItsAnswerIsBetter) {
  RngStream rng(3);
  for (int round = 0; round < 2000; ++round) {
    Points points;
    for (int i = 0; i < 8; ++i) points.push_back({std::pow(2.0, i), between(rng, 1e-6, 1)});
    const AffineCost line = fit_affine(points);
    const double found = loss(line.a_s, line.b_s, points);
    for (const double step : {1e-2, 1e-4}) {
      for (int direction = 0; direction < 16; ++direction) {
        const double angle = direction * 0.39269908;
        const double a = line.a_s + step * std::cos(angle) * (line.at(1)),
                     b = line.b_s + step * std::sin(angle) * line.at(1);
        if (a < 0 || b < 0) continue;
        ASSERT_LE(found, loss(a, b, points) * (1 + 1e-12));
      }
    }
  }
}

TEST(FitAffine, OneSizeGivesALineThroughZero) {
  const AffineCost line = fit_affine(Points{{8, 4e-3}});
  EXPECT_EQ(line.a_s, 0);
  EXPECT_DOUBLE_EQ(line.at(8), 4e-3);
  EXPECT_NEAR(line.error, 0, 1e-15);
}

TEST(FitAffine, WhatTakesNoTimeCostsNothing) {
  const AffineCost line = fit_affine(Points{{1, 0}, {2, 0}});
  EXPECT_EQ(line.at(100), 0);
  EXPECT_EQ(line.error, 0);
}

TEST(FitAffine, PointsThatCannotBeAreOurBug) {
  EXPECT_THROW(static_cast<void>(fit_affine({})), BugError);
  EXPECT_THROW(static_cast<void>(fit_affine(Points{{0, 1}})), BugError);
  EXPECT_THROW(static_cast<void>(fit_affine(Points{{1, -1}})), BugError);
  EXPECT_THROW(static_cast<void>(fit_affine(Points{{1, std::nan("")}})), BugError);
}

// The line's own constant, but no more than what the smallest size took.
TEST(SizedCost, BelowTheSmallestSizeTimesDoNotGrow) {
  EXPECT_NEAR(sized_cost(Points{{2, 5}, {4, 9}}).at(1), 3, 1e-12) << "half way from 1 at no size";
  EXPECT_NEAR(sized_cost(Points{{2, 5}, {4, 5}}).at(1), 5, 1e-12);
  SizedCost above = sized_cost(Points{{2, 5}, {4, 5}});
  above.a_s = 7;  // the line may lie above a point
  EXPECT_DOUBLE_EQ(above.at(1), 5);
}

TEST(FitLink, ALineIsFoundAsItIs) {
  std::vector<TimeAtSize> points;
  for (double size = 4096; size < 5e7; size *= 8) points.push_back({size, 1e-4 + size / 1e9});
  const LinkCost link = fit_link(points);
  EXPECT_NEAR(link.latency_s, 1e-4, 1e-12);
  EXPECT_NEAR(*link.bytes_per_s, 1e9, 1);
  EXPECT_NEAR(link.error, 0, 1e-9);
}

// A network that lets 128 KiB through at once: one line through all sizes was off by half at the large ones.
TEST(FitLink, WhatBuffersTakeInSaysNothingOfLargeMessages) {
  constexpr double kBurst = 131'072, kRate = 2.4e7;
  std::vector<TimeAtSize> points;
  for (double size = 4096; size < 5e7; size *= 8) points.push_back({size, 1e-4 + std::max(0.0, size - kBurst) / kRate});
  const LinkCost link = fit_link(points);
  for (const TimeAtSize& point : points) {
    if (point.size < 1e6) continue;
    EXPECT_NEAR(link.at(point.size) / point.time_s, 1, 0.07) << point.size;
  }
  EXPECT_NEAR(link.at(points.back().size) / points.back().time_s, 1, 0.03);
  EXPECT_GT(1 / *link.bytes_per_s, 1.3 * fit_affine(points).b_s) << "of all sizes";
}

TEST(FitLink, WithoutATimeForBytesThereIsNoBandwidth) {
  const std::vector<TimeAtSize> points{{4096, 3e-6}, {32'768, 3e-6}, {1e6, 3e-6}};
  EXPECT_FALSE(fit_link(points).bytes_per_s.has_value());
  EXPECT_DOUBLE_EQ(fit_link(points).latency_s, 3e-6);
}

}  // namespace
}  // namespace sluice::profiler
