#include "tune/noise_scale.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"

namespace sluice::tune {
namespace {

bool is_norm(double value) { return std::isfinite(value) && value >= 0; }

void check_mean_gradient(const MeanGradient& mean) {
  check(is_norm(mean.samples) && is_norm(mean.squared_norm), "a finite, non-negative sample count and squared norm");
}

}  // namespace

GradientEstimate& GradientEstimate::operator+=(const GradientEstimate& part) {
  trace += part.trace;
  squared_norm += part.squared_norm;
  return *this;
}

std::optional<GradientEstimate> estimate_from_batches(const MeanGradient& small, const MeanGradient& big) {
  check_mean_gradient(small);
  check_mean_gradient(big);
  check(small.samples > 0 && small.samples <= big.samples, "a small batch above 0 and at most the big batch");
  const double more = big.samples - small.samples;
  if (more <= 0) return std::nullopt;
  return GradientEstimate{.trace = (small.squared_norm - big.squared_norm) * small.samples * big.samples / more,
                          .squared_norm = (big.samples * big.squared_norm - small.samples * small.squared_norm) / more};
}

NoiseAverage::NoiseAverage(Options options, const State& state) : options_(options), state_(state) {
  check(options.decay > 0 && options.decay < 1, "a decay between 0 and 1");
  check(options.least >= 2, "a minimum of at least 2 estimates");
  check(state.estimates >= 0 && is_norm(state.weight) && is_norm(state.squared_weight),
        "a state with non-negative counts and weights");
}

// West 1979, after multiplying all previous weights by `keep`.
void NoiseAverage::add(const GradientEstimate& estimate, double steps) {
  check(std::isfinite(estimate.trace) && std::isfinite(estimate.squared_norm), "finite estimates");
  check(std::isfinite(steps) && steps > 0, "a finite number of steps above 0");
  const double keep = std::pow(options_.decay, steps);
  const double weight = 1 - keep;
  State& now = state_;
  ++now.estimates;
  now.weight = keep * now.weight + weight;
  now.squared_weight = keep * keep * now.squared_weight + weight * weight;
  const double trace_off = estimate.trace - now.mean.trace;
  const double norm_off = estimate.squared_norm - now.mean.squared_norm;
  now.mean.trace += weight / now.weight * trace_off;
  now.mean.squared_norm += weight / now.weight * norm_off;
  const double norm_off_new = estimate.squared_norm - now.mean.squared_norm;
  now.trace_squares = keep * now.trace_squares + weight * trace_off * (estimate.trace - now.mean.trace);
  now.norm_squares = keep * now.norm_squares + weight * norm_off * norm_off_new;
  now.products = keep * now.products + weight * trace_off * norm_off_new;
}

std::optional<NoiseScale> NoiseAverage::noise_scale() const {
  const State& now = state_;
  if (now.estimates < options_.least || now.mean.squared_norm <= 0) return std::nullopt;
  // For n equal weights, share is 1 / n, and the variance of the mean is the sum of squares / (n (n - 1)).
  const double share = now.squared_weight / (now.weight * now.weight);
  const double factor = share / (1 - share) / now.weight;
  const double ratio = now.mean.trace / now.mean.squared_norm;
  const double of_ratio = now.trace_squares - 2 * ratio * now.products + ratio * ratio * now.norm_squares;
  const auto error = [&](double squares) { return std::sqrt(std::max(0.0, squares * factor)); };
  return NoiseScale{.samples = std::max(0.0, ratio),
                    .error = error(of_ratio) / now.mean.squared_norm,
                    .trace = now.mean.trace,
                    .trace_error = error(now.trace_squares),
                    .squared_norm = now.mean.squared_norm,
                    .squared_norm_error = error(now.norm_squares),
                    .estimates = now.estimates};
}

}  // namespace sluice::tune
