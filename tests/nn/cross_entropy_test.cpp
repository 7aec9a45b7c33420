// The sliced loss, compared with ATen's cross_entropy_loss in float64.
#include "nn/cross_entropy.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "nn/bfloat16.h"
#include "nn/compare.h"
#include "nn/not_finite.h"

namespace sluice::nn {
namespace {

at::Tensor by_aten(const at::Tensor& logits, const at::Tensor& targets, double smoothing) {
  return at::cross_entropy_loss(logits.flatten(0, -2), targets.flatten(), {}, at::Reduction::Sum, kNoTarget, smoothing);
}

class CrossEntropy : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override { at::manual_seed(12); }
  at::Tensor random(at::IntArrayRef sizes) const { return at::randn(sizes, GetParam()); }
  // The gradient of a bfloat16 is rounded once.
  double tolerance() const { return GetParam() == at::kBFloat16 ? 1.0 / 256 : tolerance_of(GetParam()); }
};

TEST_P(CrossEntropy, IsThatOfAten) {
  for (const auto& [rows, tokens, classes] :
       {std::array{3, 5, 17}, std::array{1, 1, 1}, std::array{2, 3, 1000}, std::array{4, 70, 33}}) {
    for (const double smoothing : {0.0, 0.1}) {
      at::Tensor targets = at::randint(0, classes, {rows, tokens}, at::kLong);
      if (tokens > 1) targets[0][1] = kNoTarget;
      const at::Tensor logits = random({rows, tokens, classes}) * 3;
      const at::Tensor leaf = logits.clone().requires_grad_(), exact = logits.to(at::kDouble).detach().requires_grad_();
      const at::Tensor loss = cross_entropy_sum(leaf, targets, smoothing),
                       expected = by_aten(exact, targets, smoothing);
      EXPECT_EQ(loss.scalar_type(), GetParam() == at::kDouble ? at::kDouble : at::kFloat);
      EXPECT_EQ(loss.dim(), 0);
      EXPECT_NEAR(loss.item<double>(), expected.item<double>(),
                  (GetParam() == at::kDouble ? 1e-12 : 1e-5) * std::max(1.0, expected.item<double>()));
      (loss * 0.37).backward();
      (expected * 0.37).backward();
      EXPECT_EQ(leaf.grad().scalar_type(), GetParam());
      EXPECT_EQ(leaf.grad().sizes(), logits.sizes());
      EXPECT_LE(relative_error(leaf.grad(), exact.grad()), tolerance()) << classes << ", " << smoothing;
      if (tokens > 1) {
        EXPECT_EQ(leaf.grad()[0][1].abs().max().item<double>(), 0);
      }
    }
  }
}

TEST_P(CrossEntropy, OfManySlicesIsThatOfAten) {
  constexpr std::int64_t kRows = 340, kClasses = 50257;  // more logits than a slice of ATen's operators has
  const at::Tensor logits = random({kRows, kClasses}), targets = at::randint(0, kClasses, {kRows}, at::kLong);
  targets[339] = kNoTarget;
  const at::Tensor leaf = logits.clone().requires_grad_(), exact = logits.to(at::kDouble).detach().requires_grad_();
  const at::Tensor loss = cross_entropy_sum(leaf, targets, 0.05), expected = by_aten(exact, targets, 0.05);
  EXPECT_NEAR(loss.item<double>() / expected.item<double>(), 1, GetParam() == at::kDouble ? 1e-12 : 1e-6);
  loss.backward();
  expected.backward();
  EXPECT_LE(relative_error(leaf.grad(), exact.grad()), tolerance());
}

TEST_P(CrossEntropy, OfLargeLogitsDoesNotOverflow) {
  const at::Tensor targets = at::tensor(std::vector<std::int64_t>{0, 1, 2}, at::kLong);
  const at::Tensor logits = at::eye(3, GetParam()) * 1e4 + 5e4;
  EXPECT_NEAR(cross_entropy_sum(logits, targets, 0).item<double>(), 0, 1e-6);
  EXPECT_NEAR(cross_entropy_sum(logits, targets.roll(1), 0).item<double>() / 3e4, 1, 0.02);
}

TEST_P(CrossEntropy, ShowsNaNAndInfinities) {
  const at::Tensor logits = random({3, 37}), targets = at::tensor(std::vector<std::int64_t>{0, 36, 5}, at::kLong);
  for (const double smoothing : {0.0, 0.1}) {
    for (const double value : not_finite_values()) {
      for (const int place : {0, 1, 2}) {
        const at::Tensor leaf = with_value_at(logits, place, value).requires_grad_(),
                         wide = leaf.detach().to(at::kDouble).requires_grad_();
        const at::Tensor loss = cross_entropy_sum(leaf, targets, smoothing),
                         expected = by_aten(wide, targets, smoothing);
        loss.backward();
        expected.backward();
        EXPECT_EQ(std::isfinite(loss.item<double>()), std::isfinite(expected.item<double>())) << value << ", " << place;
        EXPECT_TRUE(at::equal(leaf.grad().isfinite(), wide.grad().isfinite())) << value << ", " << place;
      }
    }
  }
}

TEST_P(CrossEntropy, OfRowsWithoutTargetsIsZero) {
  const at::Tensor logits = random({4, 9}).requires_grad_();
  const at::Tensor loss = cross_entropy_sum(logits, at::full({4}, kNoTarget, at::kLong), 0.1);
  EXPECT_EQ(loss.item<double>(), 0);
  loss.backward();
  EXPECT_EQ(logits.grad().abs().max().item<double>(), 0);
  EXPECT_EQ(cross_entropy_sum(logits.narrow(0, 0, 0), at::zeros({0}, at::kLong), 0).item<double>(), 0);
}

TEST_P(CrossEntropy, OfClassProbabilitiesIsThatOfAten) {
  const at::Tensor logits = random({4, 9}), shares = at::softmax(at::randn({4, 9}), 1);
  const at::Tensor expected = at::cross_entropy_loss(in_float(logits), shares, {}, at::Reduction::Sum, kNoTarget, 0.1);
  EXPECT_EQ(cross_entropy_sum(logits, shares, 0.1).item<double>(), expected.item<double>());
}

TEST_P(CrossEntropy, RejectsTargetsThatAreNoClass) {
  const at::Tensor logits = random({2, 9});
  for (const std::int64_t wrong : {std::int64_t{9}, std::int64_t{-1}}) {
    EXPECT_THROW(static_cast<void>(cross_entropy_sum(logits, at::full({2}, wrong, at::kLong), 0)), std::exception);
  }
  EXPECT_THROW(static_cast<void>(cross_entropy_sum(logits, at::zeros({3}, at::kLong), 0)), std::exception);
}

INSTANTIATE_TEST_SUITE_P(Types, CrossEntropy, testing::Values(at::kFloat, at::kDouble, at::kBFloat16));

}  // namespace
}  // namespace sluice::nn
