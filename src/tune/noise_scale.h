// noise_scale: how far the gradients of single samples lie apart, beside the length of their mean; from squared norms
// alone (McCandlish et al. 2018, arXiv:1812.06162). The noise scale tr(Sigma) / |G|^2, in samples, is the batch from
// which on more samples help less and less (batch_size.h).
//
// Model: the gradients of the samples of a step are independent, with mean G and covariance Sigma. Of a mean g over n
// samples then E|g|^2 = |G|^2 + tr(Sigma) / n. Two means over n and N samples give both unknowns, without a bias:
//   tr(Sigma) = (|g_n|^2 - |g_N|^2) / (1/n - 1/N)        |G|^2 = (N |g_N|^2 - n |g_n|^2) / (N - n)
// whether or not the small batch is part of the big one.
//
// Replicas: K means g_k over n_k samples and g = sum v_k g_k, where the v_k add up to 1. Then
//   E sum v_k |g_k|^2 = |G|^2 + tr(Sigma) sum v_k / n_k        E|g|^2 = |G|^2 + tr(Sigma) sum v_k^2 / n_k
// so they are the formulas above with the batches n = 1 / sum v_k / n_k and N = 1 / sum v_k^2 / n_k. For any weights:
//   tr(Sigma) = (sum v_k |g_k|^2 - |g|^2) / sum v_k (1 - v_k) / n_k        |G|^2 = |g|^2 - tr(Sigma) sum v_k^2 / n_k
// Weighed by samples, v_k = n_k / N, n is N / K, whatever the n_k:
//   tr(Sigma) = (sum n_k |g_k|^2 - N |g|^2) / (K - 1) = sum n_k |g_k - g|^2 / (K - 1)
// the mean square between groups: of normal gradients no unbiased estimate of tr(Sigma) from the g_k varies less.
//
// Where the model fails: batch-norm over all replicas (kSync) makes their gradients depend on each other; tokens of one
// text do, so a text is one sample. Dropout counts as noise of the sample.
// Not here: taking the norms. Pure. Errors: BugError for what is not finite, negative norms, impossible sample counts.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace sluice::tune {

// Of one step, or of a part of its gradient: those of disjoint parts add up. Unbiased, so either may be negative.
struct GradientEstimate {
  double trace = 0;         // tr(Sigma), of one sample
  double squared_norm = 0;  // |G|^2

  GradientEstimate& operator+=(const GradientEstimate& part);
};

// A mean over samples.
struct MeanGradient {
  double samples = 0;
  double squared_norm = 0;
};

// Nothing where both batches are equally large. Requires: 0 < small.samples <= big.samples.
[[nodiscard]] std::optional<GradientEstimate> estimate_from_batches(const MeanGradient& small, const MeanGradient& big);

// All that has to be added up over replicas that are weighed by their samples.
struct ReplicaSums {
  std::int64_t replicas = 0;  // that have samples
  double samples = 0;         // N
  double squares = 0;         // the sum of n_k |g_k|^2
};
// Nothing for fewer than two replicas. mean_squared: |g|^2.
[[nodiscard]] std::optional<GradientEstimate> estimate_from_sums(const ReplicaSums& sums, double mean_squared);

// The same from each replica's own mean. One without samples is left out. weights: of the replicas in g, in any unit;
// empty: their samples. Nothing where fewer than two replicas have samples and weight.
[[nodiscard]] std::optional<GradientEstimate> estimate_from_replicas(std::span<const MeanGradient> replicas,
                                                                     double mean_squared,
                                                                     std::span<const double> weights = {});

// The ratio of two means, with one standard error (delta method). It takes the steps as independent; what drifts within
// the mean's memory counts as noise. It holds where |G|^2 is several of its own errors above 0.
struct NoiseScale {
  double samples = 0;  // tr(Sigma) / |G|^2; 0 where the mean of tr(Sigma) is negative, which is chance
  double error = 0;
  double trace = 0;
  double trace_error = 0;
  double squared_norm = 0;  // above 0
  double squared_norm_error = 0;
  std::int64_t estimates = 0;  // that went into it
};

// Means of both estimates over the steps, each for itself: the mean of their ratios would be biased, and has no
// variance where |G|^2 comes near 0. Exponential, corrected for their start: the first step alone is its own mean.
class NoiseAverage {
 public:
  struct Options {
    double decay = 0.999;     // what a step's weight is multiplied by with each further step; between 0 and 1
    std::int64_t least = 20;  // estimates, before there is an answer; at least 2
  };
  // Of estimates with weights that add up to `weight`, their squares to `squared_weight`.
  struct State {
    std::int64_t estimates = 0;
    double weight = 0;
    double squared_weight = 0;
    GradientEstimate mean;
    double trace_squares = 0;  // weighted squares and products of what the estimates differ from the means
    double norm_squares = 0;
    double products = 0;
  };

  explicit NoiseAverage(Options options) : NoiseAverage(options, {}) {}
  NoiseAverage(Options options, const State& state);  // goes on from there
  NoiseAverage() : NoiseAverage(Options{}) {}

  // steps: that this one counts for, as AdaptDL counts a step for its batch over the first one.
  void add(const GradientEstimate& estimate, double steps = 1);

  // Nothing while there are too few estimates, or the mean of |G|^2 is not above 0.
  [[nodiscard]] std::optional<NoiseScale> noise_scale() const;
  [[nodiscard]] const State& state() const { return state_; }

 private:
  Options options_;
  State state_;
};

}  // namespace sluice::tune
