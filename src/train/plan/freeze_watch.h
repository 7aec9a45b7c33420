// freeze_watch: freezing by gradients: while a run trains, it decides at the beginning of each epoch how many layers
// freeze, from what the epoch before has added up (engine/gradient_sums.h). Rank 0 decides, the others are told.
// A run that goes on from the middle of an epoch has not seen all of it: at the end of that epoch it decides nothing,
// and the epoch after has no norms before it to compare with.
// Not here: policies that depend on the epoch alone (freeze_plans.h). Threads: one; every process makes the same calls.
#pragma once

#include <optional>

#include "engine/engine.h"
#include "train/plan/freeze_planner.h"
#include "train/plan/plan_changes.h"
#include "train/plan/plan_source.h"
#include "train/setup/peers.h"
#include "train/setup/run_state.h"

namespace sluice::train {

class FreezeWatch {
 public:
  // All of them must outlive it. start: where the run begins or goes on. What is decided is added to plans.changes.
  FreezeWatch(const Peers& peers, const Setup& setup, engine::Engine& engine, RunPlans& plans, const Progress& start);

  [[nodiscard]] PlanSource source();

 private:
  // The change with which the epoch begins that has its first step next; nothing where it stays as it is.
  [[nodiscard]] std::optional<Plan> next(std::int64_t steps_done);
  // Rank 0's.
  [[nodiscard]] std::optional<PlanChange> decide(std::int64_t steps_done, std::int64_t epoch);

  const Peers& peers_;
  const Setup& setup_;
  engine::Engine& engine_;
  RunPlans& plans_;
  Progress start_;
  freeze::Policy policy_;
  FreezePlanner planner_;
  nlohmann::ordered_json record_;  // of the decision made last
  std::int64_t decided_at_ = -1;   // steps done
};

}  // namespace sluice::train
