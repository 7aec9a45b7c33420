// freeze_plans: the plans of a run whose layers freeze as the epochs go by ([freeze]), for policies that depend on the
// epoch alone: all of them are decided before the first step, as those of pipeline.changes are.
// Not here: the policies (freeze/policy.h), the shape that a pipeline takes then (tune/elastic.h), taking a plan on
// (engine/engine.h). Errors: ConfigError where a plan does not work, with the epoch named.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/plan/plan_changes.h"
#include "train/setup/run_state.h"
#include "train/setup/setup.h"

namespace sluice::train {

[[nodiscard]] bool freezes(const config::Config& config);

// Refuses a model of which a parameter that stays trained is tied to one of so many first layers.
void require_untied(const config::Config& config, const models::ModelOptions& options, int frozen_layers);

// What can be known before anything is measured: that freeze.schedule can be read and freezes no more than the model
// has, that the schedule of the pipeline suits what is left to train, and that no parameter is tied to a frozen one.
void check_freezing(const Setup& setup);

// As plan_run(): what a run begins or goes on with, and what comes. saved: what it goes on from; null: a new run.
[[nodiscard]] RunPlans plan_freezing_run(const Setup& setup, const RunState* saved);

}  // namespace sluice::train
