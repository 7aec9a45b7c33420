// batch_tuning: which global batch has the most goodput on this machine: the predicted step of the best plan of each
// batch (tune/plan_search.h), how far a sample of it brings the training by the gradient noise scale
// (tune/batch_size.h), and the learning rate that goes with it. A batch changes what is learned, so nobody asks here
// but `sluice tune --allow-batch-change`, and every assumption is a sentence of the answer. Not here: the search and
// the profiles (tuning.h), printing (app/commands/tune_batch.h). The noise scale is that of a run of the same model and
// data, or of a short one of its own, in a child process. Threads: one. Errors: ConfigError where no noise scale is to
// be had, or no batch of the range can run.
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
  std::int64_t samples = 0;          // of the training set: no batch is larger; 0: not known
  bool is_allowed = false;           // else nothing of this happens
  std::filesystem::path noise_from;  // a run directory; empty: a short run
  // Samples; 0: a quarter of the present batch, and four times as many.
  std::int64_t least = 0, most = 0;
  std::string rate_rule;  // of tune::rate_rule_names(); empty: AdaScale's gain, of Adam and its kin its square root
};

// The best plan of a batch.
struct BatchPlan {
  tune::Candidate best;
  bool is_extrapolated = false;  // its micro-batch is larger than any whose time was measured
};

struct BatchTuning {
  tune::BatchProposal proposal;
  std::string noise_origin;  // a sentence
  tune::NoiseScale noise;
  std::vector<BatchPlan> plans;        // as proposal.choices
  std::vector<std::string> sentences;  // what comes out, then what it takes for granted

  [[nodiscard]] bool changes() const { return proposal.best.batch != proposal.present.batch; }
};

// Whoever has the costs.
struct BatchSearch {
  std::function<std::optional<BatchPlan>(std::int64_t batch)> best_plan;  // nothing: none runs
  std::function<double()> limit_s;  // of the run that finds the noise scale; asked when it begins
};

// The batches that are looked at, ascending, the present one among them. Errors: ConfigError for a range without one.
[[nodiscard]] std::vector<std::int64_t> batches_to_try(const config::Config& config, const BatchTuneOptions& options);

[[nodiscard]] BatchTuning tune_batch(const config::Config& config, const BatchTuneOptions& options,
                                     const BatchSearch& search);

// The configuration with the proposed batch and its learning rate; nothing else is changed.
[[nodiscard]] config::Config with_batch(config::Config config, const BatchTuning& tuning);

}  // namespace sluice::train
