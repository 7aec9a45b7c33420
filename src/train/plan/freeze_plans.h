// freeze_plans: the plans of a run whose layers freeze over the epochs ([freeze]). If the policy depends on the epoch
// alone, all are decided before the first step. Errors: ConfigError with the epoch if a plan does not work.
#pragma once

#include "train/plan/plan_changes.h"
#include "train/setup/run_state.h"
#include "train/setup/setup.h"

namespace sluice::train {

[[nodiscard]] bool freezes(const config::Config& config);

void require_untied(const config::Config& config, const models::ModelOptions& options, int frozen_layers);

// Checks freeze.schedule, the schedule of the remaining layers and tied parameters, without measuring.
void check_freezing(const Setup& setup);

// Like plan_run(). saved: the state that the run resumes; null: a new run.
[[nodiscard]] RunPlans plan_freezing_run(const Setup& setup, const RunState* saved);

}  // namespace sluice::train
