// batch_size: what another global batch would bring: samples a second times how far each sample brings the training,
// the goodput (Qiao et al. 2021, Pollux, arXiv:2008.12260), and the learning rate that goes with it.
// phi: the gradient noise scale in samples (noise_scale.h). To reach the same loss, a batch B takes E (1 + B / phi)
// samples in S (1 + phi / B) steps, where E is the least number of samples and S that of steps (McCandlish et al.
// 2018). So a sample in a batch B brings (phi + B0) / (phi + B) of what it brings in the present batch B0. That holds
// as long as phi is the same at every batch and rate, and the rate fits its batch. What a batch changes besides is not
// in it: batch-norm's statistics, the moments of Adam, how well the result generalizes. Not here: measuring, what a
// step takes (predict.h), changing anything: this only answers. Pure. Times in seconds. Errors: ConfigError for
// batches, a rate or a rule that cannot be; BugError for numbers of ours that cannot be.
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

// Of a sample in `batch` beside one in `base`: above 1 where the batch is smaller. phi may be infinite: 1.
[[nodiscard]] double statistical_efficiency(double phi, double base, double batch);

// Beside the least possible, each at least 1: 1 + phi / B steps and 1 + B / phi samples to the same loss.
struct TrainingEffort {
  double steps = 1;
  double samples = 1;  // infinite where phi is 0
};
[[nodiscard]] TrainingEffort training_effort(double phi, double batch);
// The batch that takes twice the least steps and twice the least samples: phi.
[[nodiscard]] double critical_batch(double phi);
// The batch of this efficiency beside `base`. 0 or less where no batch is so efficient. efficiency: above 0.
[[nodiscard]] double batch_of_efficiency(double phi, double base, double efficiency);

// AdaScale (Johnson et al. 2020, arXiv:2007.05105): how many steps of the base batch one of `scale` times as many
// samples is worth: (variance + squared_norm) / (variance / scale + squared_norm), between 1 and scale.
// variance: of the mean gradient of the base batch, tr(Sigma) / B0; squared_norm: |G|^2. Not both are 0.
[[nodiscard]] double adascale_gain(double variance, double squared_norm, double scale);

enum class RateRule {
  kLinear,      // in proportion to the batch (Goyal et al. 2017)
  kSquareRoot,  // to its square root, for Adam (Malladi et al. 2022)
  kAdaScale,    // AdaScale's gain
  kAdamScale,   // its square root, for Adam, as AdaptDL does it
};
[[nodiscard]] std::span<const std::string> rate_rule_names();  // "linear", "sqrt", "adascale", "adamscale"
[[nodiscard]] RateRule rate_rule_of(std::string_view name);
[[nodiscard]] std::string_view name_of(RateRule rule);
// What the rate of `base` is multiplied by for `batch`.
[[nodiscard]] double rate_factor(RateRule rule, double phi, double base, double batch);

// Seconds of a step by its global batch; infinite: it cannot run.
using StepSeconds = std::function<double(std::int64_t batch)>;

struct StepTime {
  std::int64_t batch = 1;
  double seconds = 0;
};
// Straight lines between measured batches; infinite beyond them. Requires: each batch once, in any order.
[[nodiscard]] StepSeconds step_seconds_between(std::vector<StepTime> measured);

// Batches from `least` to `most` that `multiple` divides, ascending: all of them, or where they are many about `count`
// in equal ratios, the first and the last among them. Errors: ConfigError where there is none.
struct BatchRange {
  std::int64_t least = 1;
  std::int64_t most = 1;
  std::int64_t multiple = 1;  // replicas, say
  int count = 50;             // as AdaptDL; at least 2
};
[[nodiscard]] std::vector<std::int64_t> batches_in(const BatchRange& range);

struct BatchRequest {
  StepSeconds step_seconds;
  NoiseScale noise;
  std::int64_t batch = 1;             // the present one; it can run
  double rate = 0;                    // its learning rate
  std::vector<std::int64_t> batches;  // to choose from, besides the present one
  RateRule rule = RateRule::kLinear;
};

struct BatchChoice {
  std::int64_t batch = 0;
  double step_s = 0;
  double samples_per_s = 0;
  double efficiency = 1;  // beside the present batch
  double goodput = 0;     // samples of the present batch that it is worth, a second
  double rate = 0;
};

struct BatchProposal {
  std::vector<BatchChoice> choices;  // that can run, ascending by batch
  BatchChoice best;                  // of the largest goodput; of equal ones the smallest batch
  BatchChoice present;
  std::vector<std::int64_t> impossible;  // batches that cannot run
  // The best batch if the noise scale were one standard error less, and more.
  std::int64_t best_at_less_noise = 0;
  std::int64_t best_at_more_noise = 0;
  std::vector<std::string> sentences;  // what comes out, then what it takes for granted
};

[[nodiscard]] BatchProposal propose_batch(const BatchRequest& request);

}  // namespace sluice::tune
