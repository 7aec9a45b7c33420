#include "task/task.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace sluice::task {
namespace {

at::Tensor ids(const std::vector<std::int64_t>& values) { return at::tensor(values, at::kLong); }

auto cross_entropy_sum(double label_smoothing) {
  return [task = make_classification(label_smoothing)](const at::Tensor& logits, const at::Tensor& targets) {
    return task->loss({logits}, {targets});
  };
}

std::int64_t count_targets(const at::Tensor& targets) { return make_classification()->count_targets({targets}); }

// Numbers of top-1 and top-5 hits.
std::vector<double> count(const at::Tensor& logits, const at::Tensor& targets) {
  const TaskPtr task = make_classification();
  return task->sums_of(task->count({logits}, {targets}));
}

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

TEST(CrossEntropySum, OfTokensIsThatOfAllPositionsInARowWithoutTheMaskedOnes) {
  const at::Tensor logits = at::arange(24, at::kDouble).reshape({2, 3, 4}).sin().requires_grad_();
  const at::Tensor targets = ids({3, kNoTarget, 0, kNoTarget, kNoTarget, 2}).view({2, 3});
  const auto loss = cross_entropy_sum(0)(logits, targets);
  const at::Tensor log_p = logits.detach().log_softmax(2);
  EXPECT_NEAR(loss.item<double>(), -(log_p[0][0][3] + log_p[0][2][0] + log_p[1][2][2]).item<double>(), 1e-14);
  loss.backward();
  EXPECT_EQ(logits.grad()[0][1].abs().sum().item<double>(), 0) << "a masked place has no gradient";
  EXPECT_NEAR(logits.grad()[1][2][2].item<double>(), log_p[1][2][2].exp().item<double>() - 1, 1e-14);
}

TEST(CrossEntropySum, OfSharesIsTheMeanOfTheClassesLossesByTheirShares) {
  const at::Tensor logits = at::arange(12, at::kDouble).reshape({4, 3}).sin();
  const at::Tensor first = ids({0, 2, 1, 1}), second = ids({1, 2, 0, 2});
  const auto share_of = [](const at::Tensor& classes, double share) {
    return at::zeros({4, 3}, at::kDouble).scatter_(1, classes.unsqueeze(1), share);
  };
  const at::Tensor shares = share_of(first, 0.7) + share_of(second, 0.3);
  for (const double smoothing : {0.0, 0.1}) {
    const auto loss = cross_entropy_sum(smoothing);
    const double expected = 0.7 * loss(logits, first).item<double>() + 0.3 * loss(logits, second).item<double>();
    EXPECT_NEAR(loss(logits, shares).item<double>(), expected, 1e-14);
  }
  EXPECT_EQ(count_targets(shares), 4);
  EXPECT_EQ(count(logits, shares), count(logits, first));
  EXPECT_EQ(cross_entropy_sum(0)(logits.narrow(0, 0, 0), shares.narrow(0, 0, 0)).item<double>(), 0);
}

// Micro-batches hold different numbers of targets: their sums are divided by the number in all of them, not averaged.
TEST(CountTargets, IsWhatTheLossOfPartsIsDividedBy) {
  const at::Tensor logits = at::arange(60, at::kDouble).reshape({3, 4, 5}).cos();
  at::Tensor targets = at::arange(12, at::kLong).remainder(5).view({3, 4});
  targets[0].fill_(kNoTarget);
  targets[1].narrow(0, 1, 3).fill_(kNoTarget);
  EXPECT_EQ(count_targets(targets), 5);
  EXPECT_EQ(count_targets(targets[0]), 0);
  EXPECT_EQ(count_targets(ids({3, 1, 4})), 3);
  double sum = 0;
  for (int i = 0; i < 3; ++i)
    sum += cross_entropy_sum(0)(logits.narrow(0, i, 1), targets.narrow(0, i, 1)).item<double>();
  const at::Tensor mean = at::cross_entropy_loss(logits.flatten(0, 1), targets.flatten());
  EXPECT_NEAR(sum / static_cast<double>(count_targets(targets)), mean.item<double>(), 1e-14);
}

TEST(CountCorrect, LeavesMaskedTokensOut) {
  const at::Tensor logits = at::arange(3, at::kFloat).neg().expand({2, 4, 3});  // class c has rank c
  EXPECT_EQ(count(logits, ids({0, 1, kNoTarget, 0, kNoTarget, 2, 0, 0}).view({2, 4})), (std::vector<double>{4, 6}));
  EXPECT_EQ(count(logits, at::full({2, 4}, kNoTarget, at::kLong)), (std::vector<double>{0, 0}));
}

std::vector<double> count_ranks(const std::vector<int>& ranks, int classes) {
  const at::Tensor row = at::arange(classes, at::kFloat).neg();  // class c has rank c
  return count(row.repeat({static_cast<std::int64_t>(ranks.size()), 1}), ids({ranks.begin(), ranks.end()}));
}

TEST(CountCorrect, CountsTheLargestAndTheFiveLargest) {
  EXPECT_EQ(count_ranks({0, 1, 4, 5, 9, 0}, 10), (std::vector<double>{2, 4}));
}

TEST(CountCorrect, TopFiveOfFewerThanFiveClassesIsEverySample) {
  EXPECT_EQ(count_ranks({0, 1, 2}, 3), (std::vector<double>{1, 3}));
}

TEST(CountCorrect, AConstantOutputIsRightOnlyForTheFirstClass) {
  EXPECT_EQ(count(at::zeros({10, 10}), at::arange(10, at::kLong)), (std::vector<double>{1, 5}));
}

TEST(CountCorrect, NaNIsNeverRight) {
  const at::Tensor logits = at::full({4, 10}, std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(count(logits, ids({0, 1, 2, 3})), (std::vector<double>{0, 0}));
  EXPECT_EQ(count(logits.narrow(1, 0, 3), ids({0, 1, 2, kNoTarget})), (std::vector<double>{0, 0}))
      << "nor with fewer than five classes";
}

TEST(CountCorrect, IsTheRankInAStableSortOfTheLogits) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    at::Tensor logits = at::arange(400, at::kDouble).mul(7).remainder(11).view({40, 10}).to(type);
    logits[3][2] = std::numeric_limits<double>::infinity();
    logits[4].fill_(-std::numeric_limits<double>::infinity());
    const at::Tensor targets = at::arange(40, at::kLong).mul(3).remainder(10);
    const at::Tensor order = std::get<1>(logits.sort(/*stable=*/true, 1, /*descending=*/true));
    const at::Tensor rank = order.eq(targets.unsqueeze(1)).to(at::kLong).argmax(1);
    const std::vector<double> counts = count(logits, targets);
    EXPECT_EQ(counts[0], rank.eq(0).sum().item<double>());
    EXPECT_EQ(counts[1], rank.lt(5).sum().item<double>());
  }
}

TEST(CountCorrect, InManyClassesIsTheRankToo) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    at::Tensor logits = at::arange(12 * 5000, at::kDouble).mul(7919).remainder(997).view({12, 5000}).to(type);
    at::Tensor targets = at::arange(12, at::kLong).mul(431);
    for (std::int64_t i = 0; i < 12; ++i) {  // i logits of another piece come before the target's
      logits[i][targets[i].item<std::int64_t>()] = 2000;
      for (std::int64_t j = 0; j < i; ++j) logits[i][4999 - j] = 3000;
    }
    logits[1][4999] = 2000, targets[1] = 4998, logits[1][4998] = 2000;  // of equal logits the first comes first
    targets[2] = kNoTarget;
    const at::Tensor order = std::get<1>(logits.sort(/*stable=*/true, 1, /*descending=*/true));
    const at::Tensor rank =
        order.eq(targets.unsqueeze(1)).to(at::kLong).argmax(1).masked_fill(targets.eq(kNoTarget), 9);
    EXPECT_EQ(count(logits, targets),
              (std::vector<double>{rank.eq(0).sum().item<double>(), rank.lt(5).sum().item<double>()}))
        << type;
    EXPECT_GT(rank.lt(5).sum().item<double>(), 2);
  }
}

TEST(Scores, AddUpAndGiveMeansAndPercent) {
  ScoreSums sums{.loss_sum = 3, .targets = 2, .sums = {1, 2}};
  sums += {.loss_sum = 1, .targets = 6, .sums = {1, 2}};
  sums += {};  // a part that counted none
  EXPECT_EQ(sums.loss(), 0.5);
  const Scores scores = make_classification()->scores();
  ASSERT_EQ(scores.size(), 2U);
  EXPECT_EQ(scores[0].name, "top1");
  EXPECT_EQ(scores[0].of(sums), 25);
  EXPECT_EQ(scores[1].of(sums), 50);
}

TEST(Scores, OfALanguageModelHaveThePerplexityUnlessLabelsAreSmoothed) {
  const Scores scores = make_language_model()->scores();
  EXPECT_EQ(scores.front().name, "perplexity");
  EXPECT_FALSE(scores.front().higher_is_better);
  EXPECT_NEAR(scores.front().of({.loss_sum = 4, .targets = 2}), std::exp(2.0), 1e-12);
  EXPECT_EQ(scores.front().of({.loss_sum = 1e9, .targets = 1}), std::numeric_limits<double>::infinity());
  EXPECT_EQ(make_language_model(0.1)->scores().front().name, "top1");
}

}  // namespace
}  // namespace sluice::task
