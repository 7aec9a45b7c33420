// replan_watch: changes the plan when the measured speeds of the devices change: the shares of the replicas
// (replicas.shares = "measured"), with pipeline.replan = "auto" also the partition. Every kWindow steps all processes
// exchange the computing times of their devices. Rank 0 decides (tune/replan.h, tune/change_pace.h) and sends the plan
// to the others. A new partition must also save the time of the change within kWonBackS. A replica without a share gets
// one unit after kTrialS of steps, then after twice as long, up to kMostTrialS. Each change is a `replan` event,
// written once its effect is measured. Checkpoints hold the plan, not this state. Threads: one; all processes make the
// same calls. Errors: ConfigError (shares); those of the communicator.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "train/plan/plan_changes.h"
#include "train/setup/setup.h"
#include "train/trace/step_observer.h"
#include "tune/change_pace.h"
#include "tune/replan.h"

namespace sluice::train {

// Plan::shares at the start of a run or of a group of processes. ConfigError if the list of replicas.shares does not
// suit the plan.
[[nodiscard]] std::vector<int> first_shares(const Setup& setup, const Plan& plan);
void check_shares(const Setup& setup);  // for the configured plan

class ReplanWatch final : public StepObserver {
 public:
  static constexpr int kWindow = 10;
  static constexpr double kWonBackS = 60;
  static constexpr double kTrialS = 20, kMostTrialS = 3600;

  using Report = std::function<void(const std::string& line, const nlohmann::ordered_json& fields)>;
  // others: null if there are no other processes. plans: of the run, with layer costs in rank 0 if the cut may change.
  // Requires: setup outlives it.
  ReplanWatch(const Setup& setup, const comm::Communicator* others, const RunPlans& plans, Report report);

  // Returns the plans of `plans` with their shares, and this class's changes between them.
  [[nodiscard]] PlanSource source(PlanSource plans);
  // [device]: predicted computing time with `plan` / with the plan before it; empty if this class did not make `plan`.
  [[nodiscard]] std::vector<double> work_ratios(const Plan& plan) const;

  void after_step(const SeenStep& step) override;
  void finish() override;

 private:
  struct Change {
    std::string why;
    Plan before;
    Nanoseconds predicted = 0, measured_before = 0;
    std::vector<std::vector<double>> slowness;  // Replanner::slowness()
  };
  struct OwnPlan {
    Plan plan;
    std::vector<double> work_ratios;
  };

  [[nodiscard]] std::optional<Plan> next(std::int64_t steps_done, const PlanSource& plans);
  void refused(std::int64_t steps_done, const PlanSource& plans);
  [[nodiscard]] std::int64_t units() const;
  // Nullopt if a process has not recorded all of its work.
  [[nodiscard]] std::optional<tune::MeasuredStep> exchange_times() const;
  void decide(std::int64_t steps_done);
  // In rank 0; empty: the plan stays.
  [[nodiscard]] std::string decision(const tune::MeasuredStep& times, std::int64_t steps_done);
  // The plan to change to, or plan_, with the predicted times.
  [[nodiscard]] tune::Replanned choose(const tune::MeasuredStep& times, std::int64_t steps_done);
  // The plan with another cut only if the change of the cut is won back.
  [[nodiscard]] tune::Replanned better_of(const tune::Replanner::Best& best, std::int64_t steps_done) const;
  void report_change(std::optional<Nanoseconds> step_after);
  void forget_window();

  const Setup& setup_;
  const comm::Communicator* others_;
  Report report_;
  bool decides_by_times_;
  tune::Replanner replanner_;
  Plan plan_;                                                // of the window
  std::vector<std::vector<std::vector<Nanoseconds>>> busy_;  // [local replica][device][step of the window]
  std::vector<Nanoseconds> steps_;                           // [step of the window]
  std::uint64_t dropped_ = 0;                                // spans in the window
  std::optional<OwnPlan> wanted_;                            // the next plan
  std::optional<OwnPlan> made_;                              // the last plan of this class
  std::int64_t changed_at_ = 0;
  // In rank 0:
  tune::ChangePace pace_;
  std::optional<Change> change_;  // the last one, until its effect is measured
  double change_s_ = 0;           // seconds of a change of the cut
  bool is_trial_ = false;         // the plan tries replicas again that had no share
  double since_trial_s_ = 0;      // of steps since a replica was left out or tried
  double trial_s_ = kTrialS;
};

}  // namespace sluice::train
