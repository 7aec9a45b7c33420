// plan_changes: the plans of a run that changes its plan on the way, as pipeline.changes asks for. All are decided
// before the first step, so that a change that cannot work ends the run there.
// Not here: taking one on (engine/engine.h), when (loop.h), how the entries are written (config/changes.h).
// Errors: those of a configuration that does not work, with the change named.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/plan.h"
#include "engine/engine.h"
#include "train/plan/plan_source.h"
#include "train/setup/plan_change.h"
#include "train/setup/setup.h"

namespace sluice::train {

struct RunState;

// The one whose plan a run has at the end of so many steps; null: the plan that it began with. One that comes after
// just these steps has not come yet.
[[nodiscard]] const PlanChange* in_force(const std::vector<PlanChange>& changes, std::int64_t steps_done);

// What a run begins or goes on with, and what comes.
struct RunPlans {
  Plan now;
  bool tries_chunks = false;  // their number is left to whole steps (choose_chunks.h)
  std::vector<PlanChange> changes;
  std::vector<double> norms = {};  // of the units in the epoch before (freeze_watch.h)
};
// saved: what the run goes on from; null: a new run. Plans that were made under the same settings are kept.
[[nodiscard]] RunPlans plan_run(const Setup& setup, const RunState* saved);

// With changes that are decided. kept: the plan that a run was saved under, where it is still one for its settings;
// null: else.
[[nodiscard]] RunPlans begin_with(const Setup& setup, std::vector<PlanChange> changes, std::int64_t steps_done,
                                  const Plan* kept);

// That every change suits model, devices and processes, as far as that is known without its plan. and_that: what each
// must pass besides; may be empty.
void check_changes(const Setup& setup, const std::function<void(const Setup&)>& and_that = {});

// That the engine would take on the plans that are to come.
void check_feasible(const engine::Engine& engine, const std::vector<PlanChange>& changes, std::int64_t steps_done);

// Says, for a command that takes no steps of a run, that it looks at the settings before the first change.
void log_changes_left_out(const config::Config& config);

// Warns of changes that the run ends before.
void warn_of_late_changes(const std::vector<PlanChange>& changes, std::int64_t total_steps);

// What a `freeze` event says of a change that freezes layers.
[[nodiscard]] nlohmann::ordered_json freeze_fields(std::int64_t steps_done, const PlanChange& change);

// Gives each at its step, and notes those that are refused. `changes` must outlive it.
[[nodiscard]] PlanSource source_of(std::vector<PlanChange>& changes);

// "epoch 4 (3 in freeze.schedule and metrics.jsonl), 7 of 12 blocks frozen": what people read counts from 1, what they
// write and what programs read from 0.
[[nodiscard]] std::string describe_freezing(std::int64_t epoch, int units, int of_units);

// A line for each that is to come; empty where there is none.
[[nodiscard]] std::string describe_changes(const std::vector<PlanChange>& changes, std::int64_t steps_done);

}  // namespace sluice::train
