// plan_changes: the plans of a run with pipeline.changes (config/changes.h). All are decided before the first step, so
// that an impossible change ends the run there. Errors: those of an invalid configuration, with the change named.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/layer_cost.h"
#include "core/plan.h"
#include "engine/engine.h"
#include "train/setup/run_state.h"
#include "train/setup/setup.h"

namespace sluice::train {

// The change in force at the end of step `steps_done`; null: the first plan. A change right after it does not count.
[[nodiscard]] const PlanChange* in_force(const std::vector<PlanChange>& changes, std::int64_t steps_done);

struct RunPlans {
  Plan now;
  bool tries_chunks = false;  // choose_chunks.h decides their number
  std::vector<PlanChange> changes;
  std::vector<double> norms = {};     // of the units in the previous epoch (freeze_watch.h)
  std::vector<LayerCost> costs = {};  // [layer], with pipeline.replan in rank 0; otherwise empty
};
// saved: the state that the run resumes; null: a new run. Plans made with the same settings are kept.
[[nodiscard]] RunPlans plan_run(const Setup& setup, const RunState* saved);

// Uses changes that are already decided. kept: the saved plan if it still suits the settings; else null.
[[nodiscard]] RunPlans begin_with(const Setup& setup, std::vector<PlanChange> changes, std::int64_t steps_done,
                                  const Plan* kept);

// RunPlans::costs, if pipeline.replan needs them: `kept`, which is measured if it is empty.
void add_costs(const Setup& setup, std::vector<LayerCost>& kept, RunPlans& plans);

void check_changes(const Setup& setup, const std::function<void(const Setup&)>& and_that = {});

void check_feasible(const engine::Engine& engine, const std::vector<PlanChange>& changes, std::int64_t steps_done);

void log_changes_left_out(const config::Config& config);

void warn_of_late_changes(const std::vector<PlanChange>& changes, std::int64_t total_steps);

[[nodiscard]] nlohmann::ordered_json freeze_fields(std::int64_t steps_done, const PlanChange& change);

struct PlanSource {
  // The next plan after `steps_done` steps; nullopt: keep the current one.
  std::function<std::optional<Plan>(std::int64_t steps_done)> next = [](std::int64_t) { return std::nullopt; };
  std::function<void(std::int64_t steps_done)> refused = [](std::int64_t) {};
  // Fields of the `freeze` event for that plan; null if it freezes nothing.
  std::function<nlohmann::ordered_json(std::int64_t steps_done)> freeze_record = [](std::int64_t) { return nullptr; };
};
// Returns each change at its step, and marks refused ones. Requires: `changes` outlives it.
[[nodiscard]] PlanSource source_of(std::vector<PlanChange>& changes);

// "epoch 4 (3 in freeze.schedule and metrics.jsonl), 7 of 12 blocks frozen": logs count epochs from 1.
[[nodiscard]] std::string describe_freezing(std::int64_t epoch, int units, int of_units);

[[nodiscard]] std::string describe_changes(const std::vector<PlanChange>& changes, std::int64_t steps_done);

}  // namespace sluice::train
