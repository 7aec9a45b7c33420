// Efficiency, gains and rates against values by hand, AdaptDL's formulas and their limits; proposals against trying
// every batch.
#include "tune/batch_size.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/rng.h"
#include "core/text.h"

namespace sluice::tune {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::ThrowsMessage;

constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();
constexpr double kEndless = std::numeric_limits<double>::infinity();

// As AdaptDL's goodput.py has it, with var of the first batch.
double adaptdl_gain(double sqr, double var, double scale) { return (var + sqr) / (var / scale + sqr); }
double adaptdl_efficiency(double sqr, double var, double scale) { return adaptdl_gain(sqr, var, scale) / scale; }

// A step of a + b B seconds.
StepSeconds line(double a, double b) {
  return [=](std::int64_t batch) { return a + b * static_cast<double>(batch); };
}

BatchRequest request_with(double phi, StepSeconds seconds, std::int64_t batch = 64, std::int64_t most = 4096) {
  return {.step_seconds = std::move(seconds),
          .noise = {.samples = phi, .error = 0.1 * phi, .squared_norm = 1},
          .batch = batch,
          .rate = 0.1,
          .batches = batches_in({.least = 1, .most = most, .count = 5000})};
}

std::string all_sentences(const BatchProposal& proposal) { return join(proposal.sentences, "\n"); }

TEST(BatchSize, EfficiencyByHand) {
  EXPECT_DOUBLE_EQ(statistical_efficiency(1000, 128, 128), 1);
  EXPECT_DOUBLE_EQ(statistical_efficiency(1000, 200, 1400), 0.5);
  EXPECT_DOUBLE_EQ(statistical_efficiency(100, 300, 100), 2) << "smaller batches are worth more";
}

TEST(BatchSize, EfficiencyAtTheLimitsOfNoise) {
  EXPECT_DOUBLE_EQ(statistical_efficiency(0, 32, 256), 32.0 / 256) << "without noise more samples bring nothing";
  EXPECT_NEAR(statistical_efficiency(1e-9, 32, 256), 32.0 / 256, 1e-9);
  EXPECT_NEAR(statistical_efficiency(1e15, 32, 256), 1, 1e-9);
  EXPECT_DOUBLE_EQ(statistical_efficiency(kEndless, 32, 256), 1);
}

TEST(BatchSize, GainAndEfficiencyAreAdaptDls) {
  RngStream rng(2);
  for (int draw = 0; draw < 1000; ++draw) {
    const double trace = std::exp(rng.uniform(-5, 5)), sqr = std::exp(rng.uniform(-5, 5));
    const double base = rng.uniform(1, 512), scale = rng.uniform(1, 64);
    const double var = trace / base;
    const double gain = adaptdl_gain(sqr, var, scale);
    const double efficiency = statistical_efficiency(trace / sqr, base, base * scale);
    EXPECT_NEAR(efficiency, adaptdl_efficiency(sqr, var, scale), 1e-9);
    EXPECT_NEAR(rate_factor(RateRule::kAdaScale, trace / sqr, base, base * scale), gain, 1e-9 * gain);
    EXPECT_NEAR(rate_factor(RateRule::kAdamScale, trace / sqr, base, base * scale), std::sqrt(gain), 1e-9 * gain);
  }
}

TEST(BatchSize, RatesByRule) {
  EXPECT_DOUBLE_EQ(rate_factor(RateRule::kLinear, 300, 100, 400), 4);
  EXPECT_DOUBLE_EQ(rate_factor(RateRule::kSquareRoot, 300, 100, 400), 2);
  EXPECT_DOUBLE_EQ(rate_factor(RateRule::kAdaScale, 300, 100, 400), 4 * 400.0 / 700);
  EXPECT_DOUBLE_EQ(rate_factor(RateRule::kAdaScale, kEndless, 100, 400), 4);
  EXPECT_DOUBLE_EQ(rate_factor(RateRule::kAdaScale, 0, 100, 400), 1);
  EXPECT_DOUBLE_EQ(rate_factor(RateRule::kAdamScale, kEndless, 100, 400), 2);
  for (const std::string& name : rate_rule_names()) EXPECT_EQ(name_of(rate_rule_of(name)), name);
  EXPECT_EQ(rate_rule_of("sqrt"), RateRule::kSquareRoot);
  EXPECT_THAT([] { (void)rate_rule_of("liner"); }, ThrowsMessage<ConfigError>(HasSubstr("did you mean 'linear'?")));
}

TEST(BatchSize, RangesOfBatches) {
  EXPECT_THAT(batches_in({.least = 3, .most = 21, .multiple = 4}), ElementsAre(4, 8, 12, 16, 20));
  EXPECT_THAT(batches_in({.least = 8, .most = 8, .multiple = 8}), ElementsAre(8));
  EXPECT_THAT(batches_in({.least = 1, .most = 1024, .count = 11}),
              ElementsAre(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024));
  EXPECT_THAT(batches_in({.least = 12, .most = 1200, .multiple = 12, .count = 3}), ElementsAre(12, 120, 1200));
  const auto many = batches_in({.least = 1, .most = 100'000, .multiple = 8});
  EXPECT_LE(many.size(), 50U);
  EXPECT_EQ(many.front(), 8);
  EXPECT_EQ(many.back(), 100'000);
  EXPECT_TRUE(std::ranges::is_sorted(many, std::less_equal<>()));
  EXPECT_TRUE(std::ranges::all_of(many, [](std::int64_t batch) { return batch % 8 == 0; }));
  EXPECT_THAT([] { (void)batches_in({.least = 9, .most = 15, .multiple = 8}); },
              ThrowsMessage<ConfigError>("no multiple of 8 lies between 9 and 15; widen the range of batches"));
  EXPECT_THROW((void)batches_in({.least = 16, .most = 8}), ConfigError);
}

TEST(ProposeBatch, IsTheBestOfAllBatches) {
  RngStream rng(3);
  for (int draw = 0; draw < 50; ++draw) {
    const double phi = std::exp(rng.uniform(0, 9)), a = std::exp(rng.uniform(-6, 0)), b = std::exp(rng.uniform(-9, -3));
    const BatchProposal proposal = propose_batch(request_with(phi, line(a, b)));
    ASSERT_EQ(proposal.choices.size(), 4096U);
    double best = 0;
    std::int64_t batch = 0;
    for (std::int64_t of = 1; of <= 4096; ++of) {
      // var and sqr of a first batch of 64.
      const double scale = static_cast<double>(of) / 64;
      const double goodput =
          static_cast<double>(of) / (a + b * static_cast<double>(of)) * adaptdl_efficiency(1, phi / 64, scale);
      if (goodput > best * (1 + 1e-12)) {
        best = goodput;
        batch = of;
      }
    }
    EXPECT_EQ(proposal.best.batch, batch);
    EXPECT_NEAR(proposal.best.goodput, best, 1e-9 * best);
    // B / ((a + b B) (phi + B)) is largest where a phi = b B^2.
    const double closed = std::clamp(std::sqrt(a * phi / b), 1.0, 4096.0);
    EXPECT_NEAR(static_cast<double>(proposal.best.batch), closed, 1);
  }
}

TEST(ProposeBatch, ByHand) {
  // a phi = b B^2: 0.09 1000 = 0.01 B^2 / 9 at 284; of these three 256: 256 / 0.346 (1064 / 1256).
  BatchRequest request = request_with(1000, line(0.09, 0.001));
  request.batches = {256, 1024, 256};
  request.rule = RateRule::kSquareRoot;
  const BatchProposal proposal = propose_batch(request);
  ASSERT_EQ(proposal.choices.size(), 3U);
  EXPECT_EQ(proposal.present.batch, 64);
  EXPECT_DOUBLE_EQ(proposal.present.goodput, 64 / 0.154);
  EXPECT_DOUBLE_EQ(proposal.present.rate, 0.1);
  EXPECT_EQ(proposal.best.batch, 256);
  EXPECT_DOUBLE_EQ(proposal.best.samples_per_s, 256 / 0.346);
  EXPECT_DOUBLE_EQ(proposal.best.efficiency, 1064.0 / 1256);
  EXPECT_DOUBLE_EQ(proposal.best.goodput, 256 / 0.346 * 1064 / 1256);
  EXPECT_DOUBLE_EQ(proposal.best.rate, 0.2);
  EXPECT_EQ(proposal.choices.back().batch, 1024);
  EXPECT_THAT(proposal.sentences[0],
              "A batch of 256 with learning rate 0.2 has the largest goodput: 626.8 samples/s that are worth those of "
              "the present batch of 64, 1.51 times as many. It runs 739.9 samples/s instead of 415.6, each worth 0.85 "
              "of one now.");
  const std::string text = all_sentences(proposal);
  EXPECT_THAT(text, HasSubstr("noise scale for 1000.0 +- 100.0 samples at every batch and rate, now and later"));
  EXPECT_THAT(text, HasSubstr("Within one standard error the best batch stays the same."));
  EXPECT_THAT(text, HasSubstr("by the rule 'sqrt'"));
  EXPECT_THAT(text, HasSubstr("Batch-norm's statistics"));
  EXPECT_THAT(text, Not(HasSubstr("may be better still")));
  EXPECT_EQ(proposal.sentences.size(), 4U);
}

TEST(ProposeBatch, ErrorBarsOfNoiseAreThoseOfTheBatch) {
  BatchRequest request = request_with(1000, line(0.09, 0.001));
  request.noise.error = 600;
  const BatchProposal proposal = propose_batch(request);
  EXPECT_EQ(proposal.best.batch, 300) << "sqrt(90 1000)";
  EXPECT_EQ(proposal.best_at_less_noise, 190) << "sqrt(90 400) = 189.7";
  EXPECT_EQ(proposal.best_at_more_noise, 379) << "sqrt(90 1600) = 379.5";
  EXPECT_THAT(all_sentences(proposal), HasSubstr("One standard error less makes 190 the best batch, one more 379."));
  EXPECT_THAT(all_sentences(proposal), HasSubstr("hardly known"));
}

TEST(ProposeBatch, LeavesOutWhatCannotRunAndSaysSo) {
  const auto seconds = [](std::int64_t batch) {
    return batch < 32 || batch > 128 ? kEndless : 0.1 + 0.1 * static_cast<double>(batch - 32) / 96;
  };
  BatchRequest request = request_with(1e6, seconds);
  request.batches = {16, 32, 128, 256};
  const BatchProposal proposal = propose_batch(request);
  EXPECT_THAT(proposal.impossible, ElementsAre(16, 256));
  EXPECT_EQ(proposal.best.batch, 128);
  EXPECT_EQ(proposal.choices.size(), 3U) << "with the present one between two measured batches";
  EXPECT_THAT(all_sentences(proposal), HasSubstr("no time of a step is known: 16, 256."));
  EXPECT_THAT(all_sentences(proposal), HasSubstr("128 is the end of the batches that can run; a larger one may be"));
  request.batch = 256;
  EXPECT_THAT([&] { (void)propose_batch(request); },
              ThrowsMessage<ConfigError>("the step time of the current batch 256 was not measured"));
}

TEST(ProposeBatch, WarnsOfALinearRateBeyondTheNoise) {
  BatchRequest request = request_with(200, line(10, 0.001), 64, 1024);
  EXPECT_THAT(all_sentences(propose_batch(request)), HasSubstr("a linear rate may diverge"));
  request.rule = RateRule::kAdaScale;
  const BatchProposal proposal = propose_batch(request);
  EXPECT_THAT(all_sentences(proposal), Not(HasSubstr("may diverge")));
  EXPECT_THAT(all_sentences(proposal), HasSubstr("AdaScale's gain, for SGD"));
  EXPECT_NEAR(proposal.best.rate, 0.1 * adaptdl_gain(1, 200.0 / 64, 1024.0 / 64), 1e-12);
}

TEST(ProposeBatch, StaysWithThePresentBatchWhereNothingIsBetter) {
  // Without noise the fewest samples a step do; of equal goodput the smallest batch is taken.
  BatchRequest request = request_with(0, line(0, 0.01), 4, 64);
  EXPECT_EQ(propose_batch(request).best.batch, 1);
  request.noise = {.samples = 1e3, .error = 0, .squared_norm = 1};
  request.step_seconds = line(0.016 / 1e3, 1e-3 / 1e3);  // sqrt(16 1000) = 126
  request.batch = 126;
  request.batches = batches_in({.least = 1, .most = 512, .count = 5000});
  const BatchProposal proposal = propose_batch(request);
  EXPECT_EQ(proposal.best.batch, 126);
  EXPECT_THAT(proposal.sentences[0], HasSubstr("The present batch of 126 has the largest goodput"));
  const BatchProposal alone =
      propose_batch({.step_seconds = line(1, 1), .noise = {.samples = 8}, .batch = 8, .rate = 1});
  EXPECT_EQ(alone.best.batch, 8);
  EXPECT_THAT(alone.impossible, IsEmpty());
}

TEST(ProposeBatch, RefusesWhatCannotBe) {
  const BatchRequest good = request_with(100, line(1, 1), 8, 16);
  for (const double wrong : {kNoNumber, -1.0, kEndless, 0.0}) {
    BatchRequest request = good;
    request.rate = wrong;
    EXPECT_THROW((void)propose_batch(request), ConfigError);
    if (wrong == 0) continue;
    request = good;
    request.noise.samples = wrong;
    EXPECT_THROW((void)propose_batch(request), BugError);
    request = good;
    request.noise.error = wrong;
    EXPECT_THROW((void)propose_batch(request), BugError);
    EXPECT_THROW((void)statistical_efficiency(1, 1, wrong), BugError);
    EXPECT_THROW((void)statistical_efficiency(1, wrong, 1), BugError);
  }
  for (const double wrong : {kNoNumber, -1.0}) {
    EXPECT_THROW((void)statistical_efficiency(wrong, 1, 1), BugError);
    EXPECT_THROW((void)rate_factor(RateRule::kAdaScale, wrong, 1, 1), BugError);
    BatchRequest request = good;
    request.step_seconds = [=](std::int64_t) { return wrong; };
    EXPECT_THROW((void)propose_batch(request), BugError);
  }
  BatchRequest request = good;
  request.batch = 0;
  EXPECT_THROW((void)propose_batch(request), ConfigError);
  request = good;
  request.batches.push_back(-4);
  EXPECT_THROW((void)propose_batch(request), ConfigError);
  request = good;
  request.step_seconds = nullptr;
  EXPECT_THROW((void)propose_batch(request), BugError);
}

}  // namespace
}  // namespace sluice::tune
