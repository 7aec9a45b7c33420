// tuning: finds the plan with the most samples per second on this machine: profiles, searches (tune/plan_search.h), and
// runs the best plans briefly, all in child processes. What is learned stays as configured, except with
// TuneOptions::batch. Threads: one. Errors: ConfigError if no plan runs, or a profile does not fit.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "profiler/layer_profile.h"
#include "train/study/batch_tuning.h"
#include "train/study/verify_plans.h"
#include "tune/plan_search.h"
#include "tune/refit.h"

namespace sluice::train {

struct TuneOptions {
  std::filesystem::path config_file;
  std::vector<std::filesystem::path> profiles;  // for different threads per device; empty: measure them
  int verify = 3;
  double budget_s = 120;          // of the whole tuning (tune/budget.h)
  std::vector<std::string> keep;  // keys of the plan that stay as configured
  BatchTuneOptions batch = {};
};

[[nodiscard]] const std::vector<std::string>& tuned_keys();

// Samples per second of the chosen plan relative to the configured one.
struct Speedup {
  double factor = 1;
  bool is_measured = false;  // both ran; otherwise from corrected predictions
};

struct TuneResult {
  int slots = 1;
  std::optional<BatchTuning> batch;  // if allowed; the members below use its proposed batch
  tune::SearchResult search;
  std::optional<int> first_guess;      // of the number of chunks, if the best plan has several stages
  std::vector<VerifiedPlan> verified;  // in the order in which they ran
  std::string left_out;                // why fewer ran than requested; may be empty
  ConfiguredPlan configured;
  tune::Refit refit;  // correction of the predictions by all runs
  // The simplest plan whose run cannot be distinguished from the fastest, or, if none ran, the best predicted one.
  tune::Candidate chosen;
  bool is_verified = true;
  std::optional<Speedup> speedup;  // nullopt: no prediction of the configured plan
  int threads = 1;                 // per device in the chosen plan; 0: no CPU devices
  config::Config tuned;
  // The profile of the chosen plan's prediction: the given file, or the measured ones with its own first.
  std::filesystem::path profile_file;
  std::vector<profiler::LayerProfile> measured_profiles;
  std::string budget_use;
  double seconds = 0;
};

[[nodiscard]] TuneResult tune_plan(const config::Config& config, TuneOptions options);

}  // namespace sluice::train
