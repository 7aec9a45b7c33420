#include "train/plan/freeze_plans.h"

#include <algorithm>

#include "core/error.h"
#include "models/model.h"
#include "train/plan/freeze_planner.h"
#include "train/setup/run_state.h"

namespace sluice::train {
namespace {

std::int64_t first_step_of(std::int64_t epoch, const Setup& setup, const RunState* saved) {
  if (saved == nullptr) return epoch * setup.batches_per_epoch;
  const data::Position& position = saved->progress.position;
  return saved->progress.steps_done + (epoch - position.epoch) * setup.batches_per_epoch - position.batch;
}

const PlanChange* kept_change(const RunState* kept, std::int64_t after, int frozen_layers) {
  if (kept == nullptr) return nullptr;
  const auto found = std::ranges::find(kept->changes, after, &PlanChange::after);
  const bool is_it = found != kept->changes.end() && found->freeze && found->plan.frozen_layers == frozen_layers;
  return is_it ? &*found : nullptr;
}

config::FreezeConfig apart_from_room(config::FreezeConfig freeze) {
  const config::FreezeConfig by_default;
  freeze.cache_dir = by_default.cache_dir;
  freeze.cache_bytes = by_default.cache_bytes;
  freeze.cache_disk_bytes = by_default.cache_disk_bytes;
  return freeze;
}

bool settings_agree(const Setup& setup, const RunState& saved) {
  const config::Config was = config::parse(saved.config_toml, "state.json config");
  const bool same_processes = saved.processes == 0 || saved.processes == setup.process.processes;
  return same_processes && apart_from_room(was.freeze) == apart_from_room(setup.config.freeze) &&
         was.pipeline == setup.config.pipeline && was.replicas.local == setup.config.replicas.local &&
         was.device == setup.config.device && was.train.deterministic == setup.config.train.deterministic &&
         was.train.micro_batch == setup.config.train.micro_batch && saved.plan.global_batch == setup.global_batch;
}

int most_frozen_layers(const Setup& setup) {
  const freeze::Policy policy = policy_of(setup);
  const std::vector<int> points = freeze_points_of(setup);
  if (!is_known_beforehand(policy)) return points.back();
  int units = 0, most = 0;
  for (std::int64_t epoch = 1; epoch * setup.batches_per_epoch < setup.total_steps; ++epoch) {
    units =
        freeze::decide(policy, {.epoch = epoch, .units = static_cast<int>(points.size()) - 1, .frozen = units}).frozen;
    most = std::max(most, points[units]);
  }
  return most;
}

struct Turn {
  std::int64_t epoch = 0;
  int units_before = 0;
  freeze::Decision decision;
};

std::vector<Turn> turns_of(const Setup& setup, const RunState* saved, int units) {
  const freeze::Policy policy = policy_of(setup);
  std::vector<Turn> turns;
  int frozen = 0;
  for (std::int64_t epoch = 1; first_step_of(epoch, setup, saved) < setup.total_steps; ++epoch) {
    auto decision = freeze::decide(policy, {.epoch = epoch, .units = units, .frozen = frozen});
    if (decision.frozen == frozen) continue;
    turns.push_back({epoch, frozen, decision});
    frozen = decision.frozen;
  }
  return turns;
}

// kept: the saved state whose plans are kept; may be null.
std::vector<PlanChange> changes_of_epochs(const Setup& setup, const RunState* saved, const RunState* kept) {
  FreezePlanner planner(setup, saved != nullptr ? saved->progress.position.epoch : 0);
  const std::vector<Turn> turns = turns_of(setup, saved, planner.units());
  std::vector<PlanChange> changes;
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const auto& [epoch, units_before, decision] = turns[i];
    const std::int64_t after = first_step_of(epoch, setup, saved);
    const std::int64_t end = i + 1 < turns.size() ? turns[i + 1].epoch : epochs_of(setup);
    const PlanChange* const known = kept_change(kept, after, planner.points()[decision.frozen]);
    if (known != nullptr) {
      planner.note(epoch, units_before, decision.frozen);
      planner.follow(known->plan, known->freeze->predicted_s);
    }
    changes.push_back(known != nullptr ? *known : planner.change({after, epoch, end}, units_before, decision));
  }
  return changes;
}

// For a run that resumes with other settings: the frozen units stay, in a shape for these settings.
std::vector<PlanChange> reshaped_changes(const Setup& setup, const RunState* saved) {
  if (saved == nullptr || saved->plan.frozen_layers == 0) return {};
  FreezePlanner planner(setup);
  const auto after = std::ranges::upper_bound(planner.points(), saved->plan.frozen_layers);
  const int units = static_cast<int>(after - planner.points().begin()) - 1;
  if (units == 0) return {};
  const Progress& progress = saved->progress;
  return {planner.change({progress.steps_done - 1, progress.position.epoch, epochs_of(setup)}, units,
                         {.frozen = units, .terms = {}})};
}

}  // namespace

bool freezes(const config::Config& config) { return config.freeze.policy != "none"; }

// GPT-2's head shares the token table with the embeddings.
void require_untied(const config::Config& config, const models::ModelOptions& options, int frozen_layers) {
  const models::Model model = models::make_without_values(options);
  for (std::size_t i = frozen_layers; frozen_layers > 0 && i < model.layers.size(); ++i) {
    for (const nn::Parameter* parameter : model.layers[i]->parameters()) {
      if (parameter->tied_to.empty()) continue;
      throw ConfigError("freeze.policy = \"", config.freeze.policy, "\" cannot freeze ", options.name, ": ",
                        parameter->name, ", which is always trained, is tied to ", parameter->tied_to,
                        "; set freeze.policy = \"none\"");
    }
  }
}

void check_freezing(const Setup& setup) {
  if (!freezes(setup.config)) return;
  const int most = most_frozen_layers(setup);
  const int stages = virtual_stages(setup.config);
  if (setup.layers - most < stages) {
    throw ConfigError("freeze.policy = \"", setup.config.freeze.policy, "\" freezes up to ", most, " of ", setup.layers,
                      " layers, but pipeline.schedule = \"", setup.config.pipeline.schedule, "\" needs ", stages,
                      " for the stages of a device; freeze fewer, or choose 1f1b");
  }
  require_untied(setup.config, setup.model, most);
}

RunPlans plan_freezing_run(const Setup& setup, const RunState* saved) {
  const RunState* const kept = saved != nullptr && settings_agree(setup, *saved) ? saved : nullptr;
  const std::int64_t steps_done = saved != nullptr ? saved->progress.steps_done : 0;
  if (!is_known_beforehand(policy_of(setup))) {  // earlier decisions stay; freeze_watch.h makes the next ones
    if (kept == nullptr) return begin_with(setup, reshaped_changes(setup, saved), steps_done, nullptr);
    RunPlans plans = begin_with(setup, kept->changes, steps_done, &kept->plan);
    plans.norms = kept->norms;
    return plans;
  }
  std::vector<PlanChange> changes = changes_of_epochs(setup, saved, kept);
  const PlanChange* const change = in_force(changes, steps_done);
  const int frozen = change != nullptr ? change->plan.frozen_layers : 0;
  const bool keeps = kept != nullptr && kept->plan.frozen_layers == frozen;
  return begin_with(setup, std::move(changes), steps_done, keeps ? &kept->plan : nullptr);
}

}  // namespace sluice::train
