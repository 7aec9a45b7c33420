// share_watch: the shares of the replicas (replicas.shares). If they are measured, all processes exchange the computing
// times of their replicas every kWindow steps and come to the same decision. Shares change if the slowest replica's
// time would fall by kLeastGain in kWindows windows in a row. If a change did not make it shorter, the next one needs
// twice as many. Each change is a `replan` event, once its effect is measured.
// Threads: one; all processes make the same calls.
#pragma once

#include <optional>
#include <vector>

#include "comm/communicator.h"
#include "train/plan/plan_changes.h"
#include "train/setup/setup.h"
#include "train/trace/step_observer.h"

namespace sluice::train {

// Plan::shares at the start of a run or of a group of processes. ConfigError if the list of replicas.shares does not
// suit the plan.
[[nodiscard]] std::vector<int> first_shares(const Setup& setup, const Plan& plan);
void check_shares(const Setup& setup);  // for the configured plan

class ShareWatch final : public StepObserver {
 public:
  static constexpr int kWindow = 10;
  static constexpr double kLeastGain = 0.05;
  static constexpr int kWindows = 2, kMostWindows = 64;

  using Report = std::function<void(const std::string& name, const nlohmann::ordered_json& fields)>;
  // others: null if there are no other processes. Requires: setup outlives it.
  ShareWatch(const Setup& setup, const comm::Communicator* others, Report report);

  // Gives the plans of `plans` their shares, and changes shares between them.
  [[nodiscard]] PlanSource source(PlanSource plans);

  void after_step(const SeenStep& step) override;
  void finish() override;

 private:
  struct Change {
    std::vector<int> before;
    Nanoseconds predicted = 0, measured_before = 0;
  };

  [[nodiscard]] std::optional<Plan> next(std::int64_t steps_done, const PlanSource& plans);
  [[nodiscard]] std::int64_t units() const;
  // [replica of all processes], for one unit.
  [[nodiscard]] std::vector<Nanoseconds> unit_times() const;
  void decide(std::int64_t steps_done);
  void report_change(std::optional<Nanoseconds> measured);
  void forget_window();

  const Setup& setup_;
  const comm::Communicator* others_;
  Report report_;
  Plan plan_;                                   // of the window
  std::vector<std::vector<Nanoseconds>> busy_;  // [local replica][step of the window]
  std::vector<Nanoseconds> steps_;              // [step of the window]
  int windows_ = kWindows;                      // that must gain before the next change
  int gained_ = 0;                              // windows in a row
  std::optional<Nanoseconds> slowest_before_;   // the slowest replica's time before the last change, for one window
  std::optional<std::vector<int>> wanted_;      // shares of the next plan
  std::optional<Change> change_;                // the last one, until its effect is measured
  std::int64_t changed_at_ = 0;
};

}  // namespace sluice::train
