// freeze_watch: freezing by gradients: at the start of each epoch rank 0 decides how many layers freeze, and sends the
// plan. It uses the gradients of the previous epoch (engine/gradient_sums.h). A run that resumes within an epoch
// decides nothing at its end, because it has not seen all of it. Threads: one; all processes make the same calls.
#pragma once

#include <optional>

#include "engine/engine.h"
#include "train/plan/freeze_planner.h"
#include "train/plan/plan_changes.h"
#include "train/setup/peers.h"
#include "train/setup/run_state.h"

namespace sluice::train {

class FreezeWatch {
 public:
  // start: where this process begins. Adds its decisions to plans.changes. Requires: all arguments outlive it.
  FreezeWatch(const Peers& peers, const Setup& setup, engine::Engine& engine, RunPlans& plans, const Progress& start);

  [[nodiscard]] PlanSource source();

 private:
  // The change for the epoch that begins after `steps_done`; nullopt if the plan stays.
  [[nodiscard]] std::optional<Plan> next(std::int64_t steps_done);
  [[nodiscard]] std::optional<PlanChange> decide(std::int64_t steps_done, std::int64_t epoch);

  const Peers& peers_;
  const Setup& setup_;
  engine::Engine& engine_;
  RunPlans& plans_;
  Progress start_;
  freeze::Policy policy_;
  FreezePlanner planner_;
  nlohmann::ordered_json record_;
  std::int64_t decided_at_ = -1;
};

}  // namespace sluice::train
