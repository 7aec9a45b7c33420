#include "ddp/squares.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"

namespace sluice::ddp {
namespace {

TEST(Squares, AreThoseOfPlainSumsWithTheSameBitsOfAnyNumberOfThreads) {
  const int usual = at::get_num_threads();
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    for (const std::int64_t size : {0, 1, 15, 16, 17, 100'003, 2'000'001}) {
      const at::Tensor flat = at::randn({size}, type);
      const at::Tensor sum = squares_of(flat);
      for (const int threads : {1, 2, 3}) {
        at::set_num_threads(threads);
        EXPECT_EQ(squares_of(flat).item<double>(), sum.item<double>()) << size << " by " << threads;
      }
      EXPECT_EQ(sum.scalar_type(), at::kDouble);
      EXPECT_EQ(sum.dim(), 0);
      const double plain = flat.to(at::kDouble).square().sum().item<double>();
      EXPECT_NEAR(sum.item<double>(), plain, 1e-12 * plain) << size;
    }
  }
  at::set_num_threads(usual);
  EXPECT_TRUE(std::isnan(squares_of(at::full({20}, std::nan(""))).item<double>()));
  EXPECT_THROW((void)squares_of(at::zeros({4, 4}).t()), BugError);
}

}  // namespace
}  // namespace sluice::ddp
