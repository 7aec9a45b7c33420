// batch_size: proposes the global batch with the largest goodput, and its learning rate. Goodput is samples per second
// times the training progress per sample (Qiao et al. 2021, Pollux, arXiv:2008.12260).
// phi is the gradient noise scale in samples (noise_scale.h). To a given loss, batch B needs E (1 + B / phi) samples in
// S (1 + phi / B) steps, with E and S the least possible (McCandlish et al. 2018). So a sample in batch B is worth (phi
// + B0) / (phi + B) of one in the present batch B0. This assumes a constant phi and a rate that fits the batch, and
// ignores batch-norm statistics, Adam's moments and generalization.
// Pure. Times in seconds. Errors: ConfigError for an invalid batch, rate or rule.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tune/noise_scale.h"

namespace sluice::tune {

// Progress per sample of `batch` relative to `base`; above 1 if the batch is smaller. An infinite phi gives 1.
[[nodiscard]] double statistical_efficiency(double phi, double base, double batch);

enum class RateRule {
  kLinear,      // proportional to the batch (Goyal et al. 2017)
  kSquareRoot,  // proportional to the square root of the batch, for Adam (Malladi et al. 2022)
  kAdaScale,    // the number of steps of the base batch that one step replaces (Johnson et al. 2020, arXiv:2007.05105)
  kAdamScale,   // square root of AdaScale's gain, for Adam, as in AdaptDL
};
[[nodiscard]] std::span<const std::string> rate_rule_names();
[[nodiscard]] RateRule rate_rule_of(std::string_view name);
[[nodiscard]] std::string_view name_of(RateRule rule);
// Factor on the learning rate of `base` for `batch`.
[[nodiscard]] double rate_factor(RateRule rule, double phi, double base, double batch);

// Seconds of a step by its global batch; infinite if the batch cannot run.
using StepSeconds = std::function<double(std::int64_t batch)>;

// Ascending; if there are many, about `count` in equal ratios with the first and the last. ConfigError if there is
// none.
struct BatchRange {
  std::int64_t least = 1;
  std::int64_t most = 1;
  std::int64_t multiple = 1;  // for example the number of replicas
  int count = 50;             // the default of AdaptDL; at least 2
};
[[nodiscard]] std::vector<std::int64_t> batches_in(const BatchRange& range);

struct BatchRequest {
  StepSeconds step_seconds;
  NoiseScale noise;
  std::int64_t batch = 1;
  double rate = 0;
  std::vector<std::int64_t> batches;
  RateRule rule = RateRule::kLinear;
};

struct BatchChoice {
  std::int64_t batch = 0;
  double step_s = 0;
  double samples_per_s = 0;
  double efficiency = 1;
  double goodput = 0;  // samples per second, converted to samples of the present batch
  double rate = 0;
};

struct BatchProposal {
  std::vector<BatchChoice> choices;
  BatchChoice best;  // largest goodput; the smallest batch of a tie
  BatchChoice present;
  std::vector<std::int64_t> impossible;
  // The best batch if the noise scale is one standard error lower or higher.
  std::int64_t best_at_less_noise = 0;
  std::int64_t best_at_more_noise = 0;
  std::vector<std::string> sentences;  // the result, then its assumptions
};

[[nodiscard]] BatchProposal propose_batch(const BatchRequest& request);

}  // namespace sluice::tune
