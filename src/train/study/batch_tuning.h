// batch_tuning: the global batch with the most goodput: the best plan's predicted step for each batch
// (tune/plan_search.h) with the gradient noise scale (tune/batch_size.h). For `sluice tune --allow-batch-change` only,
// because a batch changes what is learned. Threads: one. Errors: ConfigError without a noise scale, or if no batch of
// the range can run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "tune/batch_size.h"
#include "tune/plan_search.h"

namespace sluice::train {

struct BatchTuneOptions {
  std::int64_t samples = 0;          // of the training set, an upper limit; 0: unknown
  bool is_allowed = false;           // otherwise the batch stays
  std::filesystem::path noise_from;  // a run directory; empty: a short run
  // In samples; 0: a quarter, or four times the present batch.
  std::int64_t least = 0, most = 0;
  // One of tune::rate_rule_names(); empty: AdaScale's gain, or its square root for Adam and its variants.
  std::string rate_rule;
};

struct BatchPlan {
  tune::Candidate best;
  bool is_extrapolated = false;  // its micro-batch exceeds all measured sizes
};

struct BatchTuning {
  tune::BatchProposal proposal;
  std::string noise_origin;  // a sentence
  tune::NoiseScale noise;
  std::vector<BatchPlan> plans;        // in the order of proposal.choices
  std::vector<std::string> sentences;  // the result, then its assumptions

  [[nodiscard]] bool changes() const { return proposal.best.batch != proposal.present.batch; }
};

struct BatchSearch {
  std::function<std::optional<BatchPlan>(std::int64_t batch)> best_plan;  // nullopt: none runs
  std::function<double()> limit_s;  // for the run that finds the noise scale; called when it begins
};

// In ascending order, with the present batch. Errors: ConfigError for a range without one.
[[nodiscard]] std::vector<std::int64_t> batches_to_try(const config::Config& config, const BatchTuneOptions& options);

[[nodiscard]] BatchTuning tune_batch(const config::Config& config, const BatchTuneOptions& options,
                                     const BatchSearch& search);

[[nodiscard]] config::Config with_batch(config::Config config, const BatchTuning& tuning);

}  // namespace sluice::train
