// verify_plans: short real runs of the plans that `sluice tune` found best, and of the plan as configured, one after
// the other, each in a child process (measured_plan.h), as long as the budget lasts. Not here: which plan is next
// (tune/choose_run.h), what is chosen (tuning.h). Units: seconds. Threads: one. Errors: those of measure_steps().
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "config/config.h"
#include "train/study/configured_plan.h"
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

// The configuration with this plan. threads: a device; 0: as configured.
[[nodiscard]] config::Config with_plan(config::Config config, const Plan& plan, int threads);

class PlanRuns {
 public:
  using Run = std::function<MeasuredSteps(const config::Config& config, const Measuring& how)>;

  // config: of every run, with the candidate's plan in place of its own. run: how a plan is measured; tests hand in
  // their own. Profiles and budget outlive this.
  PlanRuns(config::Config config, const Profiles& profiles, const tune::Budget& budget, Run run = measure_steps)
      : config_(std::move(config)), profiles_(profiles), budget_(budget), run_(std::move(run)) {}

  // So many of the best, or as many as the budget is enough for.
  void run_best(const std::vector<tune::Candidate>& best, int most);
  // What the configured plan takes, where it is predicted, something is there to compare it with, and the budget is
  // enough: it may have run as one of the best. Else ConfiguredPlan::not_run says why.
  void run_configured(const config::Config& configured, ConfiguredPlan& plan);

  [[nodiscard]] const std::vector<VerifiedPlan>& done() const { return done_; }  // of the best, as they ran
  [[nodiscard]] const std::string& left_out() const { return left_out_; }        // why not all that were asked for ran

 private:
  // Or why there is nothing to tell: the budget is not enough.
  [[nodiscard]] std::variant<MeasuredSteps, std::string> run_within_budget(const config::Config& config,
                                                                           const tune::Candidate& candidate,
                                                                           const std::string& which);
  // Once more, a run that is far off its prediction.
  [[nodiscard]] MeasuredSteps again(const config::Config& config, const tune::Candidate& candidate,
                                    const std::string& which, MeasuredSteps first);
  [[nodiscard]] MeasuredSteps measure(const config::Config& config, const tune::Candidate& candidate, double limit_s);

  static constexpr double kStart_s = 5;  // of a run besides its steps, where none has told

  config::Config config_;
  const Profiles& profiles_;
  const tune::Budget& budget_;
  Run run_;
  std::vector<VerifiedPlan> done_;
  std::string left_out_;
  double start_s_ = kStart_s;
};

}  // namespace sluice::train
