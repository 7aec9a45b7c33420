// verify_plans: short runs of the best plans of `sluice tune` and of the configured plan, in child processes
// (measured_plan.h), within the budget. Threads: one. Errors: those of measure_steps().
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "config/config.h"
#include "profiler/profiles.h"
#include "train/study/measured_plan.h"
#include "train/study/tune_profiles.h"
#include "tune/budget.h"
#include "tune/choose_run.h"
#include "tune/plan_search.h"

namespace sluice::train {

struct VerifiedPlan {
  tune::Candidate predicted;
  MeasuredSteps measured;

  [[nodiscard]] bool ran() const { return measured.failure.empty(); }
  // Signed, relative. Requires: ran().
  [[nodiscard]] double prediction_error() const { return predicted.step.seconds / measured.step_s - 1; }
  [[nodiscard]] tune::PlanRun as_run() const { return {predicted, ran(), measured.step_s, measured.error}; }
};

struct ConfiguredPlan {
  std::optional<tune::Candidate> predicted;
  std::string not_predicted;              // the reason; empty if predicted
  std::optional<MeasuredSteps> measured;  // nullopt if it was not run
  std::string not_run;                    // the reason, if it could have run

  [[nodiscard]] bool ran() const { return measured && measured->failure.empty(); }
};

// The profile decides an open partition or recomputation.
[[nodiscard]] ConfiguredPlan predict_configured(const config::Config& config, const profiler::Profiles& profiles);

// An empty `recompute` equals one without true entries.
[[nodiscard]] bool is_same_plan(Plan one, Plan other);

// threads: per device; 0: as configured.
[[nodiscard]] config::Config with_plan(config::Config config, const Plan& plan, int threads);

class PlanRuns {
 public:
  using Run = std::function<MeasuredSteps(const config::Config& config, const Measuring& how)>;

  // config: for every run, with the candidate's plan. Requires: `profiles` and `budget` outlive this.
  PlanRuns(config::Config config, const Profiles& profiles, const tune::Budget& budget, Run run = measure_steps)
      : config_(std::move(config)), profiles_(profiles), budget_(budget), run_(std::move(run)) {}

  void run_best(const std::vector<tune::Candidate>& best, int most);
  // Measures the configured plan if it is predicted, other plans ran, and the budget suffices; else sets `not_run`.
  void run_configured(const config::Config& configured, ConfiguredPlan& plan);

  [[nodiscard]] const std::vector<VerifiedPlan>& done() const { return done_; }
  [[nodiscard]] const std::string& left_out() const { return left_out_; }  // why fewer ran than requested

 private:
  [[nodiscard]] std::variant<MeasuredSteps, std::string> run_within_budget(const config::Config& config,
                                                                           const tune::Candidate& candidate,
                                                                           const std::string& which);
  [[nodiscard]] MeasuredSteps again(const config::Config& config, const tune::Candidate& candidate,
                                    const std::string& which, MeasuredSteps first);
  [[nodiscard]] MeasuredSteps measure(const config::Config& config, const tune::Candidate& candidate, double limit_s);

  static constexpr double kStart_s = 5;  // of a run besides its steps, before any is measured

  config::Config config_;
  const Profiles& profiles_;
  const tune::Budget& budget_;
  Run run_;
  std::vector<VerifiedPlan> done_;
  std::string left_out_;
  double start_s_ = kStart_s;
};

}  // namespace sluice::train
