#include "optim/clip_norm.h"

#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "support/operator_calls.h"

namespace sluice::optim {
namespace {

TEST(ClipNorm, SquaresAddUpInFloat64OverSeveralBlocks) {
  // With float32 sums, the error would be 1e-4 and more.
  const at::Tensor flat = at::full({200'001}, 0.1F, at::kFloat);
  const double one = static_cast<double>(0.1F) * static_cast<double>(0.1F);
  EXPECT_NEAR(sum_of_squares(flat), 200'001 * one, 1e-9);
  EXPECT_EQ(sum_of_squares(at::zeros({0})), 0.0);
  EXPECT_TRUE(std::isnan(sum_of_squares(at::full({3}, std::nan("")))));
}

TEST(ClipNorm, MagnitudesAddUpInFloat64OverSeveralBlocks) {
  const at::Tensor flat = at::full({200'001}, 0.1F, at::kFloat);
  flat.narrow(0, 0, 100'000).neg_();
  EXPECT_NEAR(sum_of_magnitudes(flat), 200'001 * static_cast<double>(0.1F), 1e-9);
  EXPECT_EQ(sum_of_magnitudes(at::zeros({0})), 0.0);
  EXPECT_TRUE(std::isnan(sum_of_magnitudes(at::full({3}, std::nan("")))));
}

// Tensors that our loop does not read: on GPUs, each operator starts kernels.
TEST(ClipNorm, OtherTensorsTakeAFewOperators) {
  const at::Tensor flat = at::full({1 << 22}, 0.1F, at::kBFloat16);
  const double one = flat[0].item<double>();
  const OperatorCalls calls;
  EXPECT_NEAR(sum_of_squares(flat) / (static_cast<double>(flat.numel()) * one * one), 1, 1e-9);
  EXPECT_NEAR(sum_of_magnitudes(flat) / (static_cast<double>(flat.numel()) * one), 1, 1e-9);
  EXPECT_LE(calls.all(), 80);
  EXPECT_EQ(calls.of("aten::_foreach_norm"), 2);
  EXPECT_EQ(sum_of_squares(at::zeros({0}, at::kBFloat16)), 0.0);
}

// Threads of a server may use different numbers of threads for one operation.
TEST(ClipNorm, SumsHaveTheSameBitsForAnyNumberOfThreads) {
  at::manual_seed(3);
  const int before = at::get_num_threads();
  for (const at::ScalarType type : {at::kFloat, at::kDouble})
    for (const std::int64_t count : {1000, 40'000, 65'536, 78'042, 1'000'003}) {
      const at::Tensor flat = at::randn({count}, type);
      at::set_num_threads(1);
      const double squares = sum_of_squares(flat), magnitudes = sum_of_magnitudes(flat);
      EXPECT_NEAR(squares, flat.to(at::kDouble).square().sum().item<double>(), 1e-12 * squares);
      for (const int threads : {2, 3, 4}) {
        at::set_num_threads(threads);
        EXPECT_EQ(sum_of_squares(flat), squares) << count << " numbers, " << threads << " threads";
        EXPECT_EQ(sum_of_magnitudes(flat), magnitudes) << count << " numbers, " << threads << " threads";
      }
    }
  at::set_num_threads(before);
}

TEST(ClipNorm, OneElementThatIsNotFiniteIsFoundAtAnyPosition) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    for (const std::int64_t size : {1, 5, 64, 100'003}) {
      const at::Tensor flat = (at::rand({size}, type) - 0.5) * 3e38;
      EXPECT_TRUE(is_finite(flat)) << "large numbers are finite, though their sum may not be";
      for (const double bad : {std::nan(""), kInfinity, -kInfinity}) {
        for (const std::int64_t at : {std::int64_t{0}, size / 2, size - 1}) {
          const at::Tensor spoilt = flat.clone();
          spoilt[at] = bad;
          EXPECT_FALSE(is_finite(spoilt)) << bad << " at " << at << " of " << size;
        }
      }
    }
  }
  EXPECT_TRUE(is_finite(at::zeros({0})));
}

TEST(ClipNorm, ScalesLongGradientsDownAndLeavesShortOnes) {
  EXPECT_EQ(clip_factor(0.5, 1.0), 1.0);
  EXPECT_EQ(clip_factor(0.0, 1.0), 1.0);
  EXPECT_DOUBLE_EQ(clip_factor(4.0, 1.0), 1.0 / (4.0 + 1e-6));  // torch.nn.utils.clip_grad_norm_
}

}  // namespace
}  // namespace sluice::optim
