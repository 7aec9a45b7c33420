// The estimators against gradients of a known mean and covariance, drawn at random, and against values by hand and
// AdaptDL's formulas; the running means and their error bars against how far repeated runs lie apart.
#include "tune/noise_scale.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "core/concat.h"
#include "core/error.h"
#include "core/rng.h"

namespace sluice::tune {
namespace {

using Vector = std::vector<double>;

double squared(const Vector& vector) { return std::inner_product(vector.begin(), vector.end(), vector.begin(), 0.0); }

// Gradients of samples: G and a covariance with unequal variances, of which neighbours are correlated.
class GradientModel {
 public:
  explicit GradientModel(double length) {
    for (int i = 0; i < kSize; ++i) {
      mean_.push_back(length * (i % 2 == 0 ? 1.0 : -0.5));
      deviations_.push_back(0.5 + 0.25 * i);
    }
  }

  [[nodiscard]] double squared_norm() const { return squared(mean_); }
  [[nodiscard]] double trace() const {
    // Each component: d_i z_i + d_i z_(i-1) / 2.
    return 1.25 * squared(deviations_);
  }
  [[nodiscard]] double noise() const { return trace() / squared_norm(); }

  // A mean over so many samples, all at once: of normal samples it is normal.
  [[nodiscard]] Vector draw(double samples, RngStream& rng) const {
    Vector z(kSize);
    for (double& number : z) number = rng.normal() / std::sqrt(samples);
    Vector gradient = mean_;
    for (int i = 0; i < kSize; ++i) gradient[i] += deviations_[i] * (z[i] + z[(i + kSize - 1) % kSize] / 2);
    return gradient;
  }
  // The same, sample by sample, of a lopsided distribution with the same covariance.
  [[nodiscard]] Vector draw_lopsided(int samples, RngStream& rng) const {
    Vector gradient = mean_;
    for (int n = 0; n < samples; ++n) {
      Vector z(kSize);
      for (double& number : z) number = (-std::log(1 - rng.uniform()) - 1) / samples;
      for (int i = 0; i < kSize; ++i) gradient[i] += deviations_[i] * (z[i] + z[(i + kSize - 1) % kSize] / 2);
    }
    return gradient;
  }

 private:
  static constexpr int kSize = 8;
  Vector mean_, deviations_;
};

Vector weighted_sum(const std::vector<Vector>& gradients, const Vector& weights) {
  Vector sum(gradients.front().size());
  const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (std::size_t k = 0; k < gradients.size(); ++k)
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += weights[k] / all * gradients[k][i];
  return sum;
}

// As in engine/noise_norms.cpp: the replicas' means make one small batch beside the big one (noise_scale.h).
GradientEstimate drawn_from_replicas(const std::vector<Vector>& gradients, const Vector& samples, Vector weights) {
  if (weights.empty()) weights = samples;
  const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
  double squares = 0, per_small = 0, per_big = 0;
  for (std::size_t k = 0; k < samples.size(); ++k) {
    const double v = weights[k] / all;
    if (v == 0) continue;
    squares += v * squared(gradients[k]);
    per_small += v / samples[k];
    per_big += v * v / samples[k];
  }
  const double of_mean = squared(weighted_sum(gradients, weights));
  return estimate_from_batches({1 / per_small, squares}, {1 / per_big, of_mean}).value();
}

struct DrawnMoments {
  double sum = 0, squares = 0, count = 0;

  void add(double value) {
    sum += value;
    squares += value * value;
    ++count;
  }
  [[nodiscard]] double mean() const { return sum / count; }
  [[nodiscard]] double variance() const { return squares / count - mean() * mean(); }
  [[nodiscard]] double error() const { return std::sqrt(variance() / count); }
};

constexpr int kDraws = 10'000;

// Draws from `next`, and expects both means within 4 of their standard errors, none of them more than `precision` of
// the value.
template <typename Next>
std::pair<DrawnMoments, DrawnMoments> expect_unbiased(const GradientModel& model, double precision, const Next& next) {
  DrawnMoments trace, norm;
  for (int draw = 0; draw < kDraws; ++draw) {
    const GradientEstimate estimate = next();
    trace.add(estimate.trace);
    norm.add(estimate.squared_norm);
  }
  EXPECT_NEAR(trace.mean(), model.trace(), 4 * trace.error());
  EXPECT_NEAR(norm.mean(), model.squared_norm(), 4 * norm.error());
  EXPECT_LT(trace.error(), precision * model.trace());
  EXPECT_LT(norm.error(), precision * model.squared_norm());
  testing::Test::RecordProperty("trace", concat(trace.mean(), " +- ", trace.error(), " of ", model.trace()));
  testing::Test::RecordProperty("norm", concat(norm.mean(), " +- ", norm.error(), " of ", model.squared_norm()));
  return {trace, norm};
}

TEST(NoiseScale, TwoBatchesAreUnbiased) {
  const GradientModel model(1);
  for (const bool is_part : {false, true}) {
    SCOPED_TRACE(is_part ? "the small batch is part of the big one" : "both are drawn apart");
    RngStream rng(derive_key(1, is_part ? 1 : 0));
    expect_unbiased(model, 0.02, [&] {
      const Vector small = model.draw(4, rng);
      const Vector big = is_part ? weighted_sum({small, model.draw(28, rng)}, {4, 28}) : model.draw(32, rng);
      return estimate_from_batches({4, squared(small)}, {32, squared(big)}).value();
    });
  }
}

TEST(NoiseScale, ReplicasAreUnbiasedWhateverTheirSamplesAndWeights) {
  const GradientModel model(1);
  const std::vector<std::pair<Vector, Vector>> cases{
      {{8, 8, 8, 8}, {}}, {{1, 2, 5, 24}, {}}, {{3, 30}, {}}, {{1, 2, 5, 24}, {1, 1, 1, 1}}, {{4, 8, 8}, {5, 1, 2}}};
  for (const auto& [samples, weights] : cases) {
    SCOPED_TRACE(testing::PrintToString(samples) + testing::PrintToString(weights));
    RngStream rng(derive_key(2, static_cast<std::uint64_t>(samples[0])));
    expect_unbiased(model, 0.02, [&, &samples = samples, &weights = weights] {
      std::vector<Vector> gradients;
      for (const double n : samples) gradients.push_back(model.draw(n, rng));
      return drawn_from_replicas(gradients, samples, weights);
    });
  }
}

TEST(NoiseScale, IsUnbiasedForGradientsThatAreNotNormal) {
  const GradientModel model(1);
  RngStream rng(3);
  expect_unbiased(model, 0.03, [&] {
    const std::vector<Vector> gradients{model.draw_lopsided(1, rng), model.draw_lopsided(3, rng),
                                        model.draw_lopsided(2, rng)};
    return drawn_from_replicas(gradients, {1, 3, 2}, {});
  });
}

TEST(NoiseScale, WeighingReplicasByTheirSamplesVariesLeast) {
  const GradientModel model(1);
  const Vector samples{1, 2, 5, 24};
  std::vector<double> variances;
  for (const Vector& weights : {Vector{}, Vector{1, 1, 1, 1}, Vector{1, 1.4, 2.2, 4.9}}) {
    RngStream rng(4);
    const auto moments = expect_unbiased(model, 0.02, [&] {
      std::vector<Vector> gradients;
      for (const double n : samples) gradients.push_back(model.draw(n, rng));
      return drawn_from_replicas(gradients, samples, weights);
    });
    variances.push_back(moments.first.variance());
  }
  EXPECT_LT(1.2 * variances[0], variances[1]) << "all alike";
  EXPECT_LT(1.02 * variances[0], variances[2]) << "by the root of the samples";
}

TEST(NoiseScale, EqualReplicasAreTwoBatchesAsInAdaptDl) {
  RngStream rng(5);
  for (int draw = 0; draw < 100; ++draw) {
    const int replicas = 2 + static_cast<int>(rng.below(7));
    const double samples = 1 + static_cast<double>(rng.below(64));
    const double mean_square = rng.uniform(1, 2);
    const double of_mean = rng.uniform(0, 1);
    const auto two = estimate_from_batches({samples, mean_square}, {replicas * samples, of_mean}).value();
    // AdaptDL: local_sqr and total_sqr are such means, var is of a batch of the first size, here of one replica.
    const double sqr = (replicas * of_mean - mean_square) / (replicas - 1);
    const double var = (mean_square - of_mean) * replicas / (replicas - 1);
    EXPECT_NEAR(two.squared_norm, sqr, 1e-9);
    EXPECT_NEAR(two.trace / samples, var, 1e-9);
  }
}

TEST(NoiseScale, IsTheMeanSquareBetweenReplicas) {
  const GradientModel model(0.5);
  RngStream rng(6);
  const Vector samples{2, 3, 7};
  std::vector<Vector> gradients;
  for (const double n : samples) gradients.push_back(model.draw(n, rng));
  const Vector mean = weighted_sum(gradients, samples);
  double between = 0;
  for (std::size_t k = 0; k < samples.size(); ++k)
    for (std::size_t i = 0; i < mean.size(); ++i) between += samples[k] * std::pow(gradients[k][i] - mean[i], 2) / 2;
  EXPECT_NEAR(drawn_from_replicas(gradients, samples, {}).trace, between, 1e-9);
}

TEST(NoiseScale, ByHand) {
  // (10 - 4) / (1/2 - 1/8) = 16; (8 4 - 2 10) / 6 = 2.
  GradientEstimate estimate = estimate_from_batches({2, 10}, {8, 4}).value();
  EXPECT_DOUBLE_EQ(estimate.trace, 16);
  EXPECT_DOUBLE_EQ(estimate.squared_norm, 2);
  estimate += {1, -5};
  EXPECT_DOUBLE_EQ(estimate.trace, 17);
  EXPECT_DOUBLE_EQ(estimate.squared_norm, -3);
}

TEST(NoiseScale, SaysNothingOfOneBatchAlone) { EXPECT_FALSE(estimate_from_batches({8, 2}, {8, 1})); }

TEST(NoiseScale, RefusesWhatCannotBe) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double wrong : {kNan, kInfinity, -1.0}) {
    EXPECT_THROW((void)estimate_from_batches({2, wrong}, {8, 1}), BugError);
    EXPECT_THROW((void)estimate_from_batches({2, 1}, {8, wrong}), BugError);
    EXPECT_THROW((void)estimate_from_batches({2, 1}, {wrong, 1}), BugError);
    EXPECT_THROW(NoiseAverage().add({1, 1}, wrong), BugError);
    EXPECT_THROW(NoiseAverage({.decay = wrong}), BugError);
  }
  EXPECT_THROW((void)estimate_from_batches({0, 1}, {8, 1}), BugError);
  EXPECT_THROW((void)estimate_from_batches({9, 1}, {8, 1}), BugError);
  EXPECT_THROW(NoiseAverage().add({kNan, 1}), BugError);
  EXPECT_THROW(NoiseAverage().add({1, kInfinity}), BugError);
  EXPECT_THROW(NoiseAverage().add({1, 1}, 0), BugError);
  EXPECT_THROW(NoiseAverage({.least = 1}), BugError);
  EXPECT_THROW(NoiseAverage({.decay = 1}), BugError);
}

TEST(NoiseAverage, IsAdaptDlsMeanCorrectedForItsStart) {
  NoiseAverage average({.decay = 0.9, .least = 2});
  RngStream rng(7);
  double biased_sqr = 0, biased_var = 0, unbias = 0;
  for (int step = 0; step < 50; ++step) {
    const GradientEstimate estimate{rng.uniform(1, 3), rng.uniform(1, 2)};
    const double scale = step < 20 ? 1 : 2.5;
    average.add(estimate, scale);
    const double factor = std::pow(0.9, scale);
    biased_sqr = factor * biased_sqr + (1.0 - factor) * estimate.squared_norm;
    biased_var = factor * biased_var + (1.0 - factor) * estimate.trace;
    unbias = factor * unbias + (1.0 - factor);
    EXPECT_NEAR(average.state().mean.squared_norm, biased_sqr / unbias, 1e-12);
    EXPECT_NEAR(average.state().mean.trace, biased_var / unbias, 1e-12);
  }
  const NoiseScale noise = average.noise_scale().value();
  EXPECT_NEAR(noise.samples, biased_var / biased_sqr, 1e-12);
  EXPECT_EQ(noise.estimates, 50);
}

// Of hardly decaying weights the errors are those of plain means.
TEST(NoiseAverage, ErrorsByHand) {
  NoiseAverage average({.decay = 1 - 1e-9, .least = 4});
  for (const auto& [trace, norm] : std::vector<std::pair<double, double>>{{2, 1}, {4, 1}, {4, 3}, {6, 3}}) {
    EXPECT_FALSE(average.noise_scale());
    average.add({trace, norm});
  }
  // Means 4 and 2; squares 8, 4 and product 4 over n (n - 1) = 12; the ratio 2: (8 - 2 2 4 + 4 4) / 12 / 2^2.
  const NoiseScale noise = average.noise_scale().value();
  EXPECT_NEAR(noise.samples, 2, 1e-6);
  EXPECT_NEAR(noise.trace_error, std::sqrt(8.0 / 12), 1e-6);
  EXPECT_NEAR(noise.squared_norm_error, std::sqrt(4.0 / 12), 1e-6);
  EXPECT_NEAR(noise.error, std::sqrt(8.0 / 12) / 2, 1e-6);
}

TEST(NoiseAverage, SaysNothingWhileTheNormIsNotPositive) {
  NoiseAverage average({.least = 2});
  average.add({1, 1});
  average.add({1, -3});
  average.add({1, 1});
  EXPECT_FALSE(average.noise_scale());
  average.add({1, 4});
  EXPECT_TRUE(average.noise_scale());
  NoiseAverage quiet({.least = 2});
  quiet.add({-1, 1});
  quiet.add({0.5, 1});
  EXPECT_EQ(quiet.noise_scale().value().samples, 0) << "a negative trace is chance";
}

TEST(NoiseAverage, GoesOnFromItsState) {
  NoiseAverage whole, first;
  RngStream rng(8);
  for (int step = 0; step < 30; ++step) {
    const GradientEstimate estimate{rng.uniform(1, 3), rng.uniform(1, 2)};
    whole.add(estimate);
    if (step == 11) first = NoiseAverage({}, first.state());
    first.add(estimate);
  }
  EXPECT_EQ(first.noise_scale().value().samples, whole.noise_scale().value().samples);
  EXPECT_EQ(first.noise_scale().value().error, whole.noise_scale().value().error);
}

// 1000 runs of 200 steps: the truth lies within one error in 68 % of them, within two in 95 %. The mean of the single
// steps' ratios is nowhere near it.
TEST(NoiseAverage, ItsErrorBarIsHonest) {
  const GradientModel model(0.7);
  for (const double decay : {0.9999, 0.98}) {
    SCOPED_TRACE(decay);
    RngStream rng(9);
    constexpr int kRuns = 1000;
    int within_one = 0, within_two = 0;
    DrawnMoments scale, error, trace, ratio;
    for (int run = 0; run < kRuns; ++run) {
      NoiseAverage average({.decay = decay});
      for (int step = 0; step < 200; ++step) {
        const std::vector<Vector> gradients{model.draw(4, rng), model.draw(8, rng), model.draw(4, rng)};
        const GradientEstimate estimate = drawn_from_replicas(gradients, {4, 8, 4}, {});
        ratio.add(estimate.trace / estimate.squared_norm);
        average.add(estimate);
      }
      const NoiseScale noise = average.noise_scale().value();
      const double off = std::abs(noise.samples - model.noise());
      within_one += off < noise.error ? 1 : 0;
      within_two += off < 2 * noise.error ? 1 : 0;
      scale.add(noise.samples);
      error.add(noise.error);
      trace.add(noise.trace);
    }
    EXPECT_NEAR(within_one, 0.683 * kRuns, 0.06 * kRuns);
    EXPECT_NEAR(within_two, 0.954 * kRuns, 0.03 * kRuns);
    EXPECT_NEAR(error.mean(), std::sqrt(scale.variance()), 0.15 * error.mean());
    EXPECT_NEAR(trace.mean(), model.trace(), 4 * trace.error());
    EXPECT_NEAR(scale.mean(), model.noise(), 0.1 * model.noise());
    EXPECT_GT(std::sqrt(ratio.variance()), 10 * error.mean());
    RecordProperty(concat("decay_", decay),
                   concat("one ", within_one, " two ", within_two, " of ", kRuns, ", scale ", scale.mean(), " +- ",
                          std::sqrt(scale.variance()), " said ", error.mean(), " of ", model.noise(), ", ratios ",
                          ratio.mean(), " +- ", std::sqrt(ratio.variance())));
  }
}

}  // namespace
}  // namespace sluice::tune
