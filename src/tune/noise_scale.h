// noise_scale: estimates the gradient noise scale tr(Sigma) / |G|^2, in samples, from squared gradient norms
// (McCandlish et al. 2018, arXiv:1812.06162). Beyond this batch more samples help less and less (batch_size.h).
//
// Model: the gradients of a step's samples are independent, with mean G and covariance Sigma. A mean g over n samples
// then has E|g|^2 = |G|^2 + tr(Sigma) / n. Means over n and N samples give unbiased estimates of both unknowns:
//   tr(Sigma) = (|g_n|^2 - |g_N|^2) / (1/n - 1/N)        |G|^2 = (N |g_N|^2 - n |g_n|^2) / (N - n)
// The small batch may be part of the big one.
//
// Replicas: K means g_k over n_k samples and g = sum v_k g_k, with weights v_k that add up to 1. Then
//   E sum v_k |g_k|^2 = |G|^2 + tr(Sigma) sum v_k / n_k        E|g|^2 = |G|^2 + tr(Sigma) sum v_k^2 / n_k
// These are the formulas above with n = 1 / sum v_k / n_k and N = 1 / sum v_k^2 / n_k. For any weights:
//   tr(Sigma) = (sum v_k |g_k|^2 - |g|^2) / sum v_k (1 - v_k) / n_k        |G|^2 = |g|^2 - tr(Sigma) sum v_k^2 / n_k
// With weights v_k = n_k / N, n is N / K for any n_k:
//   tr(Sigma) = (sum n_k |g_k|^2 - N |g|^2) / (K - 1) = sum n_k |g_k - g|^2 / (K - 1)
// This is the mean square between groups. For normal gradients no unbiased estimate from the g_k has a lower variance.
//
// The model fails for samples that depend on each other: batch-norm over all replicas (kSync), or tokens of one text
// (count a text as one sample). Dropout counts as noise.
// Pure. Errors: BugError for non-finite values, negative norms or impossible sample counts.
#pragma once

#include <cstdint>
#include <optional>

namespace sluice::tune {

// Estimates from one step or part of its gradient. Disjoint parts add up. Unbiased, so either may be negative.
struct GradientEstimate {
  double trace = 0;  // tr(Sigma) of one sample
  double squared_norm = 0;

  GradientEstimate& operator+=(const GradientEstimate& part);
};

struct MeanGradient {
  double samples = 0;
  double squared_norm = 0;
};

// Empty if both batches are equally large. Requires: 0 < small.samples <= big.samples.
[[nodiscard]] std::optional<GradientEstimate> estimate_from_batches(const MeanGradient& small, const MeanGradient& big);

// The ratio of two means with its standard errors (delta method). Steps count as independent, so drift within the
// averaging window counts as noise. It is valid if |G|^2 is several standard errors above 0.
struct NoiseScale {
  double samples = 0;  // tr(Sigma) / |G|^2; 0 if the mean of tr(Sigma) happens to be negative
  double error = 0;
  double trace = 0;
  double trace_error = 0;
  double squared_norm = 0;
  double squared_norm_error = 0;
  std::int64_t estimates = 0;
};

// Exponential averages of both estimates, because the mean of their ratios would be biased. Corrected for the start.
class NoiseAverage {
 public:
  struct Options {
    double decay = 0.999;     // factor on a step's weight per later step; between 0 and 1
    std::int64_t least = 20;  // estimates needed for a result; at least 2
  };
  // Weighted mean of the estimates; `weight` and `squared_weight` are the sums of the weights and of their squares.
  struct State {
    std::int64_t estimates = 0;
    double weight = 0;
    double squared_weight = 0;
    GradientEstimate mean;
    double trace_squares = 0;  // weighted squares and products of deviations from the means
    double norm_squares = 0;
    double products = 0;
  };

  explicit NoiseAverage(Options options) : NoiseAverage(options, {}) {}
  NoiseAverage(Options options, const State& state);
  NoiseAverage() : NoiseAverage(Options{}) {}

  // steps: weight of this estimate, as AdaptDL counts a step for its batch relative to the first one.
  void add(const GradientEstimate& estimate, double steps = 1);

  // Empty if there are too few estimates or the mean of |G|^2 is not above 0.
  [[nodiscard]] std::optional<NoiseScale> noise_scale() const;
  [[nodiscard]] const State& state() const { return state_; }

 private:
  Options options_;
  State state_;
};

}  // namespace sluice::tune
