#include "storage/not_finite.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

namespace sluice::storage::not_finite {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();

TEST(NotFinite, IsFoundAtEveryPositionOfEveryTypeOfNumber) {
  for (const auto type : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16}) {
    for (const std::int64_t size : {1, 1023, 1024, 1025, 3000}) {
      const at::Tensor values = at::full({size}, 6e4, type);  // near the largest F16
      EXPECT_TRUE(all_finite(values));
      for (const std::int64_t position : {std::int64_t{0}, size / 2, size - 1}) {
        for (const double value : {kNaN, -kNaN, kInfinity, -kInfinity}) {
          const at::Tensor changed = values.clone();
          changed[position].fill_(value);
          EXPECT_FALSE(all_finite(changed)) << type << " " << size << " " << position << " " << value;
        }
      }
    }
  }
}

TEST(NotFinite, LargestAndSmallestNumbersIntegersAndNothingAreFinite) {
  using Limits = std::numeric_limits<float>;
  EXPECT_TRUE(all_finite(at::tensor({Limits::max(), Limits::lowest(), Limits::denorm_min(), 0.0F, -0.0F})));
  EXPECT_TRUE(all_finite(at::full({5}, -1, at::kLong)));  // all bits set
  EXPECT_TRUE(all_finite(at::ones({2}, at::kBool)));
  EXPECT_TRUE(all_finite(at::empty({0})));
}

TEST(NotFinite, IsCountedInWords) {
  const at::Tensor values = at::zeros({3, 4});
  EXPECT_EQ(describe_not_finite(values), "");
  values[1][1].fill_(kInfinity);
  EXPECT_EQ(describe_not_finite(values), "1 infinite value");
  values[2].fill_(kNaN);
  EXPECT_EQ(describe_not_finite(values.t()), "4 NaN and 1 infinite value");
  EXPECT_EQ(describe_not_finite(values[2]), "4 NaN");
  EXPECT_EQ(describe_not_finite(TensorMap{{"a", at::zeros({2})}, {"b", values}}), "b has 4 NaN and 1 infinite value");
  EXPECT_EQ(describe_not_finite(TensorMap{{"b", values}, {"c", values[2]}, {"d", values[2]}}),
            "b has 4 NaN and 1 infinite value (and 2 more tensors hold NaN or infinite values)");
}

}  // namespace
}  // namespace sluice::storage::not_finite
