#include "train/plan/plan_changes.h"

#include <algorithm>
#include <cmath>

#include "config/changes.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "train/plan/choose_plan.h"
#include "train/plan/plan_description.h"
#include "train/plan/plan_settings.h"
#include "train/plan/replan_watch.h"
#include "train/setup/run_state.h"

namespace sluice::train {
namespace {

std::string name_of_change(std::int64_t after) { return concat("pipeline.changes, the change after step ", after); }

config::Config settings_since(const config::Config& config, std::int64_t after) {
  config::Config settings = config;
  for (config::Change& change : config::changes_of(config)) {
    if (change.after <= after) settings = std::move(change.config);
  }
  return settings;
}

std::int64_t since(const std::vector<PlanChange>& changes, std::int64_t steps_done) {
  const PlanChange* const change = in_force(changes, steps_done);
  return change != nullptr ? change->after : 0;
}

class SavedPlans {
 public:
  SavedPlans(const Setup& setup, const RunState* saved) : setup_(setup), saved_(saved) {
    if (saved_ != nullptr) was_ = config::parse(saved_->config_toml, "state.json config");
  }

  // True if `plan`, made for the saved settings since step `then`, suits `now`. Other data may limit the batch.
  [[nodiscard]] bool keeps(const Plan& plan, std::int64_t then, const config::Config& now) const {
    return plan.global_batch == setup_.global_batch &&
           plan_can_be_kept(now, settings_since(was_, then), setup_.process.processes, plan, setup_.schedule_text);
  }

  [[nodiscard]] PlanChange change(const config::Change& wanted) const {
    if (saved_ != nullptr) {
      const auto found = std::ranges::find(saved_->changes, wanted.after, &PlanChange::after);
      if (found != saved_->changes.end() && keeps(found->plan, wanted.after, wanted.config)) return *found;
    }
    return {.after = wanted.after, .plan = decide_plan(with_settings(setup_, wanted.config))};
  }

  [[nodiscard]] bool keeps_own(const config::Config& now) const {
    return saved_ != nullptr && keeps(saved_->plan, since(saved_->changes, saved_->progress.steps_done), now);
  }

 private:
  const Setup& setup_;
  const RunState* saved_;
  config::Config was_;
};

}  // namespace

const PlanChange* in_force(const std::vector<PlanChange>& changes, std::int64_t steps_done) {
  const PlanChange* last = nullptr;
  for (const PlanChange& change : changes) {
    if (change.after < steps_done && !change.is_refused) last = &change;
  }
  return last;
}

RunPlans plan_run(const Setup& setup, const RunState* saved) {
  const SavedPlans plans_of_before(setup, saved);
  std::vector<PlanChange> changes;
  for (const config::Change& change : config::changes_of(setup.config))
    changes.push_back(plans_of_before.change(change));
  const std::int64_t steps_done = saved != nullptr ? saved->progress.steps_done : 0;
  const bool keeps = plans_of_before.keeps_own(settings_since(setup.config, since(changes, steps_done)));
  return begin_with(setup, std::move(changes), steps_done, keeps ? &saved->plan : nullptr);
}

RunPlans begin_with(const Setup& setup, std::vector<PlanChange> changes, std::int64_t steps_done, const Plan* kept) {
  RunPlans plans{.changes = std::move(changes)};
  const PlanChange* const change = in_force(plans.changes, steps_done);
  if (kept != nullptr) {
    plans.now = *kept;
  } else if (change != nullptr) {
    plans.now = change->plan;
  } else {
    plans.now = decide_plan(setup);
    plans.tries_chunks = chunks_are_open(setup.config);
  }
  plans.now.shares = first_shares(setup, plans.now);
  for (PlanChange& later : plans.changes) later.plan.shares = first_shares(setup, later.plan);
  return plans;
}

void add_costs(const Setup& setup, std::vector<LayerCost>& kept, RunPlans& plans) {
  if (!setup.config.pipeline.replans() || plans.now.stages() == 1) return;
  if (kept.empty()) kept = layer_costs(setup);
  plans.costs = kept;
}

void check_changes(const Setup& setup, const std::function<void(const Setup&)>& and_that) {
  if (!setup.config.pipeline.order.empty() && setup.schedule_text.empty()) return;  // until rank 0 has sent it
  check_shares(setup);
  for (const config::Change& change : config::changes_of(setup.config)) {
    try {
      const Setup changed = with_settings(setup, change.config);
      check_shares(changed);
      if (and_that) and_that(changed);
    } catch (const Error& error) {
      throw error.with_context(name_of_change(change.after));
    }
  }
}

void check_feasible(const engine::Engine& engine, const std::vector<PlanChange>& changes, std::int64_t steps_done) {
  for (const PlanChange& change : changes) {
    if (change.after < steps_done) continue;
    try {
      engine.check_feasible(change.plan);
    } catch (const Error& error) {
      throw error.with_context(name_of_change(change.after));
    }
  }
}

void log_changes_left_out(const config::Config& config) {
  if (config.freeze.policy != "none")
    log_info("freeze.policy applies to sluice train only; here all layers are trained");
  if (config.pipeline.replans()) log_info("pipeline.replan applies to sluice train only; here the plan stays");
  if (!config.replicas.shares.is_equal()) log_info("replicas.shares applies to sluice train only; here they are equal");
  if (config.pipeline.changes.empty()) return;
  log_info("pipeline.changes applies to sluice train only; these are the settings before its first change, after step ",
           config::changes_of(config).front().after);
}

void warn_of_late_changes(const std::vector<PlanChange>& changes, std::int64_t total_steps) {
  for (const PlanChange& change : changes) {
    if (change.after >= total_steps)
      log_warning(name_of_change(change.after), ", never happens: the run ends at step ", total_steps);
  }
}

PlanSource source_of(std::vector<PlanChange>& changes) {
  const auto at = [&changes](std::int64_t steps_done) {
    return std::ranges::find(changes, steps_done, &PlanChange::after);
  };
  return {.next = [&changes, at](std::int64_t steps_done) -> std::optional<Plan> {
            const auto change = at(steps_done);
            return change == changes.end() ? std::nullopt : std::optional(change->plan);
          },
          .refused = [at](std::int64_t steps_done) { at(steps_done)->is_refused = true; },
          .freeze_record =
              [&changes, at](std::int64_t steps_done) {
                const auto change = at(steps_done);
                const bool freezes = change != changes.end() && change->freeze;
                return freezes ? freeze_fields(steps_done, *change) : nlohmann::ordered_json();
              }};
}

nlohmann::ordered_json freeze_fields(std::int64_t steps_done, const PlanChange& change) {
  const FreezeRecord& record = change.freeze.value();
  nlohmann::ordered_json fields{{"step", steps_done},          {"epoch", record.epoch},
                                {"units", record.units},       {"units_before", record.units_before},
                                {"of_units", record.of_units}, {"frozen_layers", change.plan.frozen_layers}};
  if (record.units != record.units_before) {
    fields["predicted_before_ms"] = record.predicted_before_s * 1e3;
    fields["predicted_ms"] = record.predicted_s * 1e3;
    fields["predicted_staying_ms"] = record.staying_s * 1e3;
  }
  for (const freeze::Term& term : record.terms) {
    fields["terms"][term.name] =
        std::isfinite(term.value) ? nlohmann::ordered_json(term.value) : nlohmann::ordered_json(fixed(term.value, 0));
  }
  return fields;
}

std::string describe_freezing(std::int64_t epoch, int units, int of_units) {
  return concat("epoch ", epoch + 1, " (", epoch, " in freeze.schedule and metrics.jsonl), ", units, " of ", of_units,
                " blocks frozen");
}

std::string describe_changes(const std::vector<PlanChange>& changes, std::int64_t steps_done) {
  std::vector<std::string> lines;
  for (const PlanChange& change : changes) {
    if (change.after < steps_done) continue;
    std::string freezing;
    if (const auto& freeze = change.freeze)
      freezing = concat(describe_freezing(freeze->epoch, freeze->units, freeze->of_units), ": ");
    lines.push_back(concat("after step ", change.after, ": ", freezing, in_words(change.plan)));
  }
  return join(lines, "\n");
}

}  // namespace sluice::train
