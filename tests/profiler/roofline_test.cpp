#include "profiler/roofline.h"

#include <gtest/gtest.h>

#include "profiler/operator_profile.h"

namespace sluice::profiler {
namespace {

TEST(Roofline, TheNearerPeakBoundsIfItIsNearEnough) {
  const MachinePeaks peaks{.flops_per_s = 100, .bytes_per_s = 10};
  EXPECT_EQ(roofline_of(60, 1, 1, peaks).bound, Bound::kCompute);
  EXPECT_EQ(roofline_of(60, 9, 1, peaks).bound, Bound::kMemory);
  EXPECT_EQ(roofline_of(100, 10, 1, peaks).bound, Bound::kCompute);
  EXPECT_EQ(roofline_of(30, 3, 1, peaks).bound, Bound::kNeither);
  EXPECT_EQ(roofline_of(30, 3, 0, peaks).bound, Bound::kNeither);
  const Roofline line = roofline_of(60, 9, 2, peaks);
  EXPECT_DOUBLE_EQ(line.of_flops, 0.3);
  EXPECT_DOUBLE_EQ(line.of_bytes, 0.45);
  // 3 s bound by memory, 2 s by products, 4 s between the operators.
  PassOperators pass{.seconds = 9, .watched_s = 9, .operators = {{"a", 1, 3, 0, 25}, {"b", 1, 2, 180, 0}}};
  EXPECT_EQ(bound_of(pass, peaks), Bound::kNeither);
  pass.watched_s = 7;
  EXPECT_EQ(bound_of(pass, peaks), Bound::kMemory);
}

}  // namespace
}  // namespace sluice::profiler
