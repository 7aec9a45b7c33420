#include "train/loss.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace sluice::train {
namespace {

at::Tensor ids(const std::vector<std::int64_t>& values) { return at::tensor(values, at::kLong); }

TEST(CrossEntropySum, IsTheSumOverTheSamplesOfMinusTheLogProbability) {
  const at::Tensor logits = at::arange(12, at::kDouble).reshape({4, 3}).sin();
  const at::Tensor targets = ids({0, 2, 1, 1});
  double expected = 0;
  const at::Tensor log_probabilities = logits.exp().div(logits.exp().sum(1, true)).log();
  for (int i = 0; i < 4; ++i) expected -= log_probabilities[i][targets[i].item<std::int64_t>()].item<double>();
  EXPECT_NEAR(cross_entropy_sum(0)(logits, targets).item<double>(), expected, 1e-14);
}

TEST(CrossEntropySum, OfPartsAddsUpWhateverTheirSizes) {
  const at::Tensor logits = at::arange(21, at::kDouble).reshape({7, 3}).cos();
  const at::Tensor targets = ids({0, 2, 1, 1, 0, 0, 2});
  const auto loss = cross_entropy_sum(0.1);
  const double parts = loss(logits.narrow(0, 0, 5), targets.narrow(0, 0, 5)).item<double>() +
                       loss(logits.narrow(0, 5, 2), targets.narrow(0, 5, 2)).item<double>();
  EXPECT_NEAR(loss(logits, targets).item<double>(), parts, 1e-14);
}

TEST(CrossEntropySum, SmoothingSpreadsAShareOfTheTargetOverAllClasses) {
  const at::Tensor logits = at::tensor(std::vector<double>{1.0, 2.0, 4.0}).unsqueeze(0);
  const at::Tensor log_p = logits.log_softmax(1)[0];
  const double expected = -(0.7 * log_p[2] + 0.3 / 3 * log_p.sum()).item<double>();
  EXPECT_NEAR(cross_entropy_sum(0.3)(logits, ids({2})).item<double>(), expected, 1e-14);
}

// Row i of the logits has its target at rank `ranks[i]`.
EvalCounts count_ranks(const std::vector<int>& ranks, int classes) {
  const at::Tensor row = at::arange(classes, at::kFloat).neg();  // class c has rank c
  return count_correct(row.repeat({static_cast<std::int64_t>(ranks.size()), 1}), ids({ranks.begin(), ranks.end()}));
}

TEST(CountCorrect, CountsTheLargestAndTheFiveLargest) {
  const EvalCounts counts = count_ranks({0, 1, 4, 5, 9, 0}, 10);
  EXPECT_EQ(counts.top1, 2);
  EXPECT_EQ(counts.top5, 4);
  EXPECT_EQ(counts.samples, 6);
}

TEST(CountCorrect, TopFiveOfFewerThanFiveClassesIsEverySample) {
  const EvalCounts counts = count_ranks({0, 1, 2}, 3);
  EXPECT_EQ(counts.top1, 1);
  EXPECT_EQ(counts.top5, 3);
}

TEST(CountCorrect, AConstantOutputIsRightOnlyForTheFirstClass) {
  const EvalCounts counts = count_correct(at::zeros({10, 10}), at::arange(10, at::kLong));
  EXPECT_EQ(counts.top1, 1);
  EXPECT_EQ(counts.top5, 5);
}

TEST(CountCorrect, NaNIsNeverRight) {
  const at::Tensor logits = at::full({4, 10}, std::numeric_limits<float>::quiet_NaN());
  const EvalCounts counts = count_correct(logits, ids({0, 1, 2, 3}));
  EXPECT_EQ(counts.top1, 0);
  EXPECT_EQ(counts.top5, 0);
  EXPECT_EQ(counts.samples, 4);
}

TEST(EvalCounts, AddUpAndGiveMeansAndPercent) {
  EvalCounts counts{.loss_sum = 3, .top1 = 1, .top5 = 2, .samples = 2};
  counts += {.loss_sum = 1, .top1 = 1, .top5 = 2, .samples = 6};
  EXPECT_EQ(counts.loss(), 0.5);
  EXPECT_EQ(counts.top1_percent(), 25);
  EXPECT_EQ(counts.top5_percent(), 50);
}

}  // namespace
}  // namespace sluice::train
