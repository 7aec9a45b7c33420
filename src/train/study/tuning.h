// tuning: from a configuration to the plan with the most samples a second on this machine: profiles in child processes
// where none are given, the search over plans (tune/plan_search.h), short real runs of the best of them in child
// processes, so that one without memory ends nothing, and the fastest of these. Model, data and all that changes what
// is learned stay as configured, and but for TuneOptions::batch the global batch and its learning rate, too. Not here:
// printing (app/commands/tune.cpp).
// Threads: one. Errors: ConfigError where no plan runs, or a profile is of something else.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "profiler/layer_profile.h"
#include "train/study/batch_tuning.h"
#include "train/study/configured_plan.h"
#include "train/study/verify_plans.h"
#include "tune/plan_search.h"
#include "tune/refit.h"

namespace sluice::train {

struct TuneOptions {
  std::filesystem::path config_file;
  std::vector<std::filesystem::path> profiles;  // of different numbers of threads a device; empty: they are measured
  int verify = 3;                               // plans that are run
  double budget_s = 120;                        // of all of it (tune/budget.h)
  std::vector<std::string> keep;                // keys of the plan that stay as configured
  BatchTuneOptions batch = {};
};

// The keys that TuneOptions::keep can name.
[[nodiscard]] const std::vector<std::string>& tuned_keys();

// Samples a second of the chosen plan beside those of the configured one.
struct Speedup {
  double factor = 1;
  bool is_measured = false;  // both ran; else it is by corrected predictions
};

struct TuneResult {
  int slots = 1;                     // devices of this machine that plans may use
  std::optional<BatchTuning> batch;  // where it was allowed; what follows is of the batch that it proposes
  tune::SearchResult search;
  std::optional<int> first_guess;      // of the number of chunks, where the best plan has several stages
  std::vector<VerifiedPlan> verified;  // in the order in which they ran
  std::string left_out;                // why fewer ran than asked for; empty: as many did
  ConfiguredPlan configured;           // the plan as it was
  tune::Refit refit;                   // what all runs say of the predictions
  // The simplest of those that ran, the configured one among them, and that no measurement tells from the fastest;
  // where none was run, the best predicted.
  tune::Candidate chosen;
  bool is_verified = true;
  std::optional<Speedup> speedup;  // nothing: the configured plan is not predicted
  int threads = 1;                 // a device, of the chosen plan; 0: not of CPU devices
  config::Config tuned;
  // What the chosen plan is predicted from: the file that was given, or those that were measured, its own first.
  std::filesystem::path profile_file;
  std::vector<profiler::LayerProfile> measured_profiles;
  std::string budget_use;  // what each part took
  double seconds = 0;      // that all of it took
};

[[nodiscard]] TuneResult tune_plan(const config::Config& config, TuneOptions options);

}  // namespace sluice::train
