#include "freeze/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "core/error.h"
#include "core/rng.h"

namespace sluice::freeze {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

double term(const Decision& decision, const std::string& name) {
  for (const Term& t : decision.terms)
    if (t.name == name) return t.value;
  ADD_FAILURE() << "no term " << name;
  return kNan;
}

bool has_term(const Decision& decision, const std::string& name) {
  return std::ranges::any_of(decision.terms, [&](const Term& t) { return t.name == name; });
}

std::vector<int> linear_table(double alpha, int units, int epochs) {
  std::vector<int> table;
  for (int epoch = 0; epoch < epochs; ++epoch)
    table.push_back(decide({.rule = Rule::kLinear, .alpha = alpha}, {.epoch = epoch, .units = units}).frozen);
  return table;
}

// What PipeTransformer ran on ViT-B/16 (12 blocks), computed with its code; the row of 1/3 is in the paper's figures.
TEST(Linear, IsThePublishedTable) {
  EXPECT_THAT(linear_table(1.0 / 3, 12, 10), ElementsAre(0, 4, 7, 9, 10, 11, 11, 12, 12, 12));
  EXPECT_THAT(linear_table(0.07, 12, 10), ElementsAre(0, 1, 2, 3, 4, 4, 5, 5, 6, 6));
  EXPECT_THAT(linear_table(1.0 / 5, 12, 10), ElementsAre(0, 3, 5, 6, 8, 9, 9, 10, 10, 11));
  EXPECT_THAT(linear_table(1.0 / 4, 12, 10), ElementsAre(0, 3, 6, 7, 9, 10, 10, 11, 11, 12));
  EXPECT_THAT(linear_table(2.0 / 5, 12, 6), ElementsAre(0, 5, 8, 10, 11, 12));
  EXPECT_THAT(linear_table(1.0 / 2, 12, 6), ElementsAre(0, 6, 9, 11, 12, 12));
  EXPECT_THAT(linear_table(1.0 / 3, 24, 3),
              ElementsAre(0, 8, 14));  // BERT-large, whose 24 blocks their code took for 12
  EXPECT_EQ(linear_table(0.07, 12, 36).back(), 12);
}

// alpha = p / q in whole numbers: ceil(L - L ((q - p) / q)^T) = L - floor(L (q - p)^T / q^T).
TEST(Linear, IsTheFormulaInWholeNumbersForEveryFraction) {
  for (std::int64_t q = 2; q <= 20; ++q) {
    for (std::int64_t p = 1; p <= q; ++p) {
      const double alpha = static_cast<double>(p) / static_cast<double>(q);
      for (int units = 1; units <= 60; ++units) {
        std::int64_t active = units, whole = 1;
        for (int epoch = 0; whole < 5'000'000; ++epoch, active *= q - p, whole *= q) {
          const Decision decision = decide({.rule = Rule::kLinear, .alpha = alpha}, {.epoch = epoch, .units = units});
          ASSERT_EQ(decision.frozen, units - active / whole) << p << "/" << q << " of " << units << " in " << epoch;
        }
      }
    }
  }
}

// (1 - a)^T (a L / (1 - a) + sum over t from 2 to T of a L / (1 - a)^t), as their code writes it.
TEST(Linear, IsTheSumOfThePapersAppendix) {
  for (const double alpha : {0.07, 0.3, 0.5}) {
    double sum = alpha * 12 / (1 - alpha);
    for (int epoch = 1; epoch <= 30; ++epoch) {
      if (epoch > 1) sum += alpha * 12 / std::pow(1 - alpha, epoch);
      const Decision decision = decide({.rule = Rule::kLinear, .alpha = alpha}, {.epoch = epoch, .units = 12});
      EXPECT_NEAR(term(decision, "linear_units"), std::pow(1 - alpha, epoch) * sum, 1e-9);
    }
  }
}

TEST(Linear, TakesTheLeastTheGreatestAndTheRoundedAlpha) {
  EXPECT_THAT(linear_table(1, 12, 3), ElementsAre(0, 12, 12));
  EXPECT_THAT(linear_table(1e-12, 12, 3), ElementsAre(0, 1, 1));  // 1.2e-11 of a unit, rounded up
  EXPECT_THAT(linear_table(0.6666666667, 12, 2), ElementsAre(0, 8));
  EXPECT_THAT(linear_table(0.3, 0, 2), ElementsAre(0, 0));
  const Situation late{.epoch = std::numeric_limits<std::int64_t>::max(), .units = 12};
  EXPECT_EQ(decide({.rule = Rule::kLinear}, late).frozen, 12);
}

TEST(Scheduled, IsTheLastEntryThatHasComeAndMayThaw) {
  // PipeTransformer's hand-made "mild" schedule, and a thaw at its end.
  const Policy mild{.rule = Rule::kSchedule, .schedule = {{1, 6}, {3, 8}, {6, 10}, {8, 12}, {10, 2}}};
  std::vector<int> frozen;
  for (int epoch = 0; epoch < 12; ++epoch) frozen.push_back(decide(mild, {.epoch = epoch, .units = 12}).frozen);
  EXPECT_THAT(frozen, ElementsAre(0, 6, 6, 8, 8, 8, 10, 10, 12, 12, 2, 2));
  EXPECT_EQ(term(decide(mild, {.epoch = 7, .units = 12}), "scheduled_epoch"), 6);
  EXPECT_EQ(decide({.rule = Rule::kSchedule}, {.epoch = 3, .units = 12}).frozen, 0);
}

TEST(Policies, KnownBeforehandDependOnTheEpochAlone) {
  const std::vector<double> norms(12, kNan);
  for (const Policy& policy : {Policy{.rule = Rule::kLinear}, Policy{.rule = Rule::kSchedule, .schedule = {{2, 5}}},
                               Policy{.rule = Rule::kNone}}) {
    EXPECT_TRUE(is_known_beforehand(policy));
    EXPECT_FALSE(needs_gradients(policy));
    for (int epoch = 0; epoch < 6; ++epoch) {
      const int frozen = decide(policy, {.epoch = epoch, .units = 12}).frozen;
      EXPECT_EQ(decide(policy, {epoch, 12, 11, norms, norms}).frozen, frozen);
    }
  }
  EXPECT_EQ(decide({.rule = Rule::kNone}, {.epoch = 3, .units = 12, .frozen = 2}).frozen, 0);
}

Decision by_gradient(const Situation& situation, double alpha = 0.5) {
  return decide({.rule = Rule::kGradient, .alpha = alpha}, situation);
}

TEST(Gradient, FreezesUpToAndWithTheActiveUnitOfTheSmallestNorm) {
  EXPECT_EQ(by_gradient({.epoch = 1, .units = 6, .norms = {5, 1, 2, 3, 4, 6}}).frozen, 2);
  EXPECT_EQ(by_gradient({.epoch = 1, .units = 6, .norms = {1, 5, 2, 3, 4, 6}}).frozen, 1);
  EXPECT_EQ(by_gradient({.epoch = 2, .units = 6, .frozen = 2, .norms = {0, kNan, 3, 2, 4, 6}}).frozen, 4);
}

TEST(Gradient, FreezesNoMoreThanAnAlphaOfTheActiveUnits) {
  const Decision decision = by_gradient({.epoch = 3, .units = 6, .frozen = 2, .norms = {0, 0, 6, 5, 4, 1}}, 0.4);
  EXPECT_EQ(decision.frozen, 4);  // 2 + 0.4 * 4 = 3.6
  EXPECT_DOUBLE_EQ(term(decision, "step_cap"), 3.6);
  EXPECT_DOUBLE_EQ(term(decision, "linear_cap"), 6 * (1 - 0.6 * 0.6 * 0.6));
  EXPECT_EQ(term(decision, "cap"), 4);
  EXPECT_EQ(term(decision, "smallest_norm_unit"), 5);
  EXPECT_EQ(term(decision, "norm_3"), 5);
  EXPECT_FALSE(has_term(decision, "norm_1"));
  EXPECT_EQ(term(decision, "frozen_before"), 2);
  EXPECT_EQ(term(decision, "epoch"), 3);
}

// The bound alone decides then: rounded up each epoch, equation 1 would come to 12 of 12 in epoch 6, one too early.
TEST(Gradient, IsTheLinearTableWhereTheLastUnitHasTheSmallestNorm) {
  for (const double alpha : {0.07, 0.2, 0.25, 1.0 / 3, 0.4, 0.5, 1.0}) {
    for (const int units : {1, 7, 12, 24}) {
      std::vector<double> norms(units, 2.0);
      norms.back() = 1;
      const std::vector<int> table = linear_table(alpha, units, 12);
      int frozen = 0;
      for (int epoch = 0; epoch < 12; ++epoch) {
        frozen = by_gradient({epoch, units, frozen, norms, {}}, alpha).frozen;
        EXPECT_EQ(frozen, table[epoch]) << alpha << " of " << units << " in " << epoch;
      }
    }
  }
}

TEST(Gradient, OfEqualNormsTheFirstUnitCounts) {
  EXPECT_EQ(by_gradient({.epoch = 1, .units = 4, .norms = {3, 2, 2, 2}}, 1).frozen, 2);
  EXPECT_EQ(by_gradient({.epoch = 1, .units = 4, .norms = {0, 0, 0, 0}}, 1).frozen, 1);
  EXPECT_EQ(by_gradient({.epoch = 1, .units = 4, .norms = {3, 0, 2, 1}}, 1).frozen, 2);
}

Decision by_change(const Situation& situation, double percentile = 50) {
  return decide({.rule = Rule::kGradientChange, .percentile = percentile}, situation);
}

Situation changed_by(const std::vector<double>& changes) {
  Situation now{.epoch = 2, .units = static_cast<int>(changes.size())};
  for (std::size_t i = 0; i < changes.size(); ++i) {
    const double before = i % 2 == 0 ? 8 : 4;
    now.norms_before.push_back(before);
    now.norms.push_back(before * (i % 3 == 0 && changes[i] < 1 ? 1 - changes[i] : 1 + changes[i]));  // both ways
  }
  return now;
}

TEST(GradientChange, HasNumpysThreshold) {
  // numpy.percentile(changes, [0, 10, 25, 50, 62, 90, 100])
  const Situation now = changed_by({0.5, 0.125, 2.0, 0.25, 1.0, 0.75, 0.0});
  const std::vector<double> percentiles{0, 10, 25, 50, 62, 90, 100};
  const std::vector<double> expected{0, 0.075, 0.1875, 0.5, 0.68, 1.4, 2};
  for (std::size_t i = 0; i < percentiles.size(); ++i)
    EXPECT_THAT(term(by_change(now, percentiles[i]), "threshold"), DoubleNear(expected[i], 1e-12)) << percentiles[i];
}

TEST(GradientChange, FreezesWhatComesBeforeTheFirstUnitThatChanges) {
  const Decision decision = by_change(changed_by({0.125, 0.25, 0.5, 0.0, 1.0, 0.75}));
  EXPECT_EQ(term(decision, "threshold"), 0.375);
  EXPECT_EQ(decision.frozen, 2);  // not unit 2 itself, though unit 3 behind it changes less
  EXPECT_EQ(term(decision, "change_4"), 1);
  EXPECT_EQ(term(decision, "norm_before_4"), 8);
  EXPECT_EQ(term(decision, "norm_4"), 16);
  EXPECT_EQ(term(decision, "percentile"), 50);
  EXPECT_EQ(by_change(changed_by({1.0, 0.0, 0.0, 0.0})).frozen, 0);  // the first one changes
}

TEST(GradientChange, LooksAtActiveUnitsOnly) {
  // The changes of units 2 to 5: 0.25, 0.5, 1, 0.125; half of them change by 0.375 or more.
  const Situation now{2, 6, 2, {kNan, 0, 5, 6, 8, 4.5}, {1, kInfinity, 4, 4, 4, 4}};
  const Decision decision = by_change(now);
  EXPECT_EQ(term(decision, "threshold"), 0.375);
  EXPECT_EQ(decision.frozen, 3);
  EXPECT_FALSE(has_term(decision, "change_1"));
}

TEST(GradientChange, TakesAUnitWithoutGradientForUnchangedAndOneThatBeginsToLearnForChanged) {
  const Decision decision = by_change({2, 4, 0, {0, 0, 3, 1}, {0, 2, 0, 1}});
  EXPECT_EQ(term(decision, "change_0"), 0);
  EXPECT_EQ(term(decision, "change_1"), 1);
  EXPECT_EQ(term(decision, "change_2"), kInfinity);
  EXPECT_EQ(term(decision, "threshold"), 0.5);
  EXPECT_EQ(decision.frozen, 1);
  EXPECT_EQ(term(by_change({2, 3, 0, {1, 2, 3}, {1, 1, 0}}), "threshold"), 1);  // exactly at the middle one
  const Decision all_begin = by_change({2, 3, 0, {1, 2, 3}, {0, 0, 0}});
  EXPECT_EQ(term(all_begin, "threshold"), kInfinity);
  EXPECT_EQ(all_begin.frozen, 0);
  EXPECT_EQ(by_change({2, 3, 0, {0, 0, 0}, {0, 0, 0}}).frozen, 0);
}

TEST(GradientRules, LeaveEverythingWhereANormIsMissingOrNotFinite) {
  const std::vector<double> good{1, 2, 3, 4};
  for (const Policy& policy : {Policy{.rule = Rule::kGradient}, Policy{.rule = Rule::kGradientChange}}) {
    EXPECT_TRUE(needs_gradients(policy));
    EXPECT_FALSE(is_known_beforehand(policy));
    EXPECT_TRUE(has_term(decide(policy, {3, 4, 1, {}, {}}), "norm_missing"));
    for (const double bad : {kNan, kInfinity}) {
      for (int unit = 1; unit < 4; ++unit) {
        std::vector<double> norms = good;
        norms[unit] = bad;
        const Decision decision = decide(policy, {3, 4, 1, norms, good});
        EXPECT_EQ(decision.frozen, 1);
        EXPECT_TRUE(has_term(decision, "norm_not_finite"));
      }
    }
    EXPECT_EQ(decide(policy, {3, 4, 1, {}, {}}).frozen, 1);
    EXPECT_EQ(decide(policy, {3, 4, 4, good, good}).frozen, 4);
    EXPECT_EQ(decide(policy, {0, 4, 0, good, {4, 3, 2, 1}}).frozen, 0);
  }
  EXPECT_EQ(by_change({3, 4, 1, good, {1, 2, kNan, 4}}).frozen, 1);
  EXPECT_TRUE(has_term(by_change({3, 4, 1, good, {}}), "norm_before_missing"));
}

std::vector<double> random_norms(RngStream& rng, int units) {
  std::vector<double> norms(units);
  for (double& norm : norms) norm = rng.below(8) == 0 ? 0 : rng.uniform();
  return norms;
}

TEST(GradientRules, NeverThawAndKeepToTheirBounds) {
  RngStream rng(11);
  for (int round = 0; round < 2000; ++round) {
    const int units = 1 + static_cast<int>(rng.below(16));
    Policy policy{.rule = round % 2 == 0 ? Rule::kGradient : Rule::kGradientChange,
                  .alpha = 1 - rng.uniform(),
                  .percentile = static_cast<double>(rng.below(101))};
    const std::vector<int> table = linear_table(policy.alpha, units, 12);
    Situation now{.epoch = 0, .units = units};
    for (; now.epoch < 12; ++now.epoch) {
      const Decision decision = decide(policy, now);
      ASSERT_GE(decision.frozen, now.frozen);
      const int active = units - now.frozen;
      if (policy.rule == Rule::kGradient) {
        ASSERT_LE(decision.frozen, table[now.epoch]);
        ASSERT_LE(decision.frozen, now.frozen + std::ceil(policy.alpha * active));
      } else if (active > 0) {
        ASSERT_LE(decision.frozen - now.frozen, std::ceil(policy.percentile * (active - 1) / 100));
        ASSERT_LT(decision.frozen, units);
      }
      now.frozen = decision.frozen;
      now.norms_before = std::move(now.norms);
      now.norms = random_norms(rng, units);
    }
  }
}

// Liu et al.'s loop: sort, threshold, first unit that reaches it.
int freeze_by_hand(const Situation& now, double percentile) {
  std::vector<double> changes, sorted;
  for (int i = now.frozen; i < now.units; ++i)
    changes.push_back(std::abs(now.norms_before[i] - now.norms[i]) / now.norms_before[i]);
  sorted = changes;
  std::ranges::sort(sorted);
  const double position = percentile / 100 * static_cast<double>(sorted.size() - 1);
  const double below = sorted[static_cast<std::size_t>(std::floor(position))],
               above = sorted[static_cast<std::size_t>(std::ceil(position))];
  const double threshold = below + (above - below) * (position - std::floor(position));
  for (std::size_t i = 0; i < changes.size(); ++i)
    if (changes[i] >= threshold) return now.frozen + static_cast<int>(i);
  return now.units;
}

TEST(GradientChange, IsThePublishedLoop) {
  RngStream rng(12);
  for (int round = 0; round < 2000; ++round) {
    Situation now{.epoch = 3, .units = 1 + static_cast<int>(rng.below(12))};
    now.frozen = static_cast<int>(rng.below(now.units));
    for (int i = 0; i < now.units; ++i) {
      now.norms.push_back(rng.uniform() + 0.1);
      now.norms_before.push_back(rng.uniform() + 0.1);
    }
    for (const double percentile : {25.0, 50.0, 80.0}) {
      ASSERT_EQ(by_change(now, percentile).frozen, freeze_by_hand(now, percentile)) << "round " << round;
    }
  }
}

TEST(Policies, RefuseWhatTheirCallerPromisedNotToAsk) {
  EXPECT_THROW((void)decide({.rule = Rule::kLinear, .alpha = 0}, {.epoch = 1, .units = 4}), BugError);
  EXPECT_THROW((void)decide({.rule = Rule::kLinear, .alpha = kNan}, {.epoch = 1, .units = 4}), BugError);
  EXPECT_THROW((void)by_change({2, 2, 0, {1, 2}, {1, 2}}, 101), BugError);
  EXPECT_THROW((void)by_gradient({.epoch = 1, .units = 4, .frozen = 5}), BugError);
  EXPECT_THROW((void)by_gradient({.epoch = 1, .units = 4, .norms = {1, 2}}), BugError);
  EXPECT_THROW((void)by_gradient({.epoch = 1, .units = 2, .norms = {1, -2}}), BugError);
  const Policy deep{.rule = Rule::kSchedule, .schedule = {{1, 5}}};
  EXPECT_THROW((void)decide(deep, {.epoch = 0, .units = 4}), BugError);  // not only when its epoch comes
}

TEST(Rules, HaveNames) {
  EXPECT_EQ(rule_of("none"), Rule::kNone);
  EXPECT_EQ(rule_of("linear"), Rule::kLinear);
  EXPECT_EQ(rule_of("gradient"), Rule::kGradient);
  EXPECT_EQ(rule_of("gradient-change"), Rule::kGradientChange);
  EXPECT_EQ(rule_of("schedule"), Rule::kSchedule);
  try {
    (void)rule_of("linea");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("freeze.policy = \"linea\" is unknown; choose one of: "));
    EXPECT_THAT(error.what(), HasSubstr("; did you mean 'linear'?"));
  }
}

}  // namespace
}  // namespace sluice::freeze
