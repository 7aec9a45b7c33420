// replan_watch: changes the plan during the run as the speeds of its devices change: the shares of the replicas
// (replicas.shares) and the cut (pipeline.replan). Every kWindow steps all processes exchange the computing times of
// their devices, and rank 0 decides (tune/replan.h). The plan changes if the slowest replica's time would fall by
// kLeastGain in kWindows windows in a row, and if a new cut is won back within kWonBackS. If a change did not make it
// shorter, the next one needs twice as many windows. A replica that got no share is tried again after kTrialS, then
// each time after twice as long. Each change is a `replan` event, once its effect is measured.
// Threads: one; all processes make the same calls.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/layer_cost.h"
#include "train/plan/plan_changes.h"
#include "train/setup/setup.h"
#include "train/trace/step_observer.h"
#include "tune/replan.h"

namespace sluice::train {

// Plan::shares at the start of a run or of a group of processes. ConfigError if the list of replicas.shares does not
// suit the plan.
[[nodiscard]] std::vector<int> first_shares(const Setup& setup, const Plan& plan);
void check_shares(const Setup& setup);  // for the configured plan

class ReplanWatch final : public StepObserver {
 public:
  static constexpr int kWindow = 10;
  static constexpr double kLeastGain = 0.05;
  static constexpr int kWindows = 2, kMostWindows = 64;
  static constexpr double kWonBackS = 60;
  static constexpr double kTrialS = 20, kMostTrialS = 3600;

  using Report = std::function<void(const std::string& line, const nlohmann::ordered_json& fields)>;
  // others: null if there are no other processes. plans: of the run, with layer costs in rank 0 if the cut may change.
  // Requires: setup outlives it.
  ReplanWatch(const Setup& setup, const comm::Communicator* others, const RunPlans& plans, Report report);

  // Gives the plans of `plans` their shares, and changes plans between them.
  [[nodiscard]] PlanSource source(PlanSource plans);
  // [device]: the work of `plan` / that of the plan before, if this class has made `plan` of it. Otherwise empty.
  [[nodiscard]] std::vector<double> work_ratios(const Plan& plan) const;

  void after_step(const SeenStep& step) override;
  void finish() override;

 private:
  struct Change {
    std::string why;
    Plan before;
    Nanoseconds predicted = 0, measured_before = 0;
  };
  struct Wanted {
    Plan plan;
    std::vector<double> work_ratios;
  };

  [[nodiscard]] bool is_root() const { return setup_.process.rank == 0; }
  [[nodiscard]] std::optional<Plan> next(std::int64_t steps_done, const PlanSource& plans);
  void refused(std::int64_t steps_done, const PlanSource& plans);
  [[nodiscard]] std::int64_t units() const;
  [[nodiscard]] tune::MeasuredStep measured() const;
  void decide(std::int64_t steps_done);
  // In rank 0; empty: the plan stays.
  [[nodiscard]] std::string decision(const tune::MeasuredStep& measured, std::int64_t steps_done);
  [[nodiscard]] tune::Replanned choose(const tune::MeasuredStep& measured, std::int64_t steps_done);
  [[nodiscard]] bool is_won_back(const tune::Replanned& found, std::int64_t steps_done);
  void report_change(std::optional<Nanoseconds> measured);
  void forget_window();

  const Setup& setup_;
  const comm::Communicator* others_;
  Report report_;
  bool is_measured_;
  tune::Replanner replanner_;
  Plan plan_;                                                // of the window
  std::vector<std::vector<std::vector<Nanoseconds>>> busy_;  // [local replica][device][step of the window]
  std::vector<Nanoseconds> steps_;                           // [step of the window]
  std::optional<Wanted> wanted_;                             // the next plan
  std::optional<Wanted> made_;                               // the last plan of this class
  std::int64_t changed_at_ = 0;
  // In rank 0:
  int windows_ = kWindows;                // that must gain before the next change
  int gained_ = 0;                        // windows in a row
  std::optional<double> slowest_before_;  // seconds of the slowest replica before the last change, for one window
  std::optional<Change> change_;          // the last one, until its effect is measured
  std::optional<double> change_s_;        // seconds of a change of the cut
  bool is_trial_ = false;                 // the plan tries replicas again that had no share
  double tried_at_s_ = 0, trial_s_ = kTrialS;
};

}  // namespace sluice::train
