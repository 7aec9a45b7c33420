#include "train/freeze_plans.h"

#include <algorithm>
#include <chrono>

#include <ATen/ATen.h>

#include "core/clock.h"
#include "core/concat.h"
#include "core/divided_up.h"
#include "core/error.h"
#include "core/log.h"
#include "freeze/schedule_text.h"
#include "models/freeze_points.h"
#include "models/model.h"
#include "train/choose_plan.h"
#include "train/resume.h"
#include "tune/elastic.h"
#include "tune/predict.h"

namespace sluice::train {
namespace {

std::vector<int> points_of(const Setup& setup) {
  return models::freeze_points(
      setup.model, setup.config.freeze.unit == "half" ? models::FreezeUnit::kHalfBlock : models::FreezeUnit::kBlock);
}

// About what a change of shape takes: the model is made once more for each replica, and its state, which is up to three
// times its parameters, is copied out and in.
double seconds_of_change(const Setup& setup) {
  const Nanoseconds begin = now_ns();
  const models::Model model = models::make_model(setup.model);
  const Nanoseconds made = now_ns();
  for (const auto& layer : model.layers) {
    for (const nn::Parameter* parameter : layer->parameters()) (void)parameter->value.detach().clone();
  }
  const Nanoseconds copied = now_ns();
  const int places = setup.config.pipeline.stages * setup.config.replicas.local;
  return to_s(made - begin) * places + to_s(copied - made) * 6;
}

// When an epoch begins, in steps of the run.
std::int64_t first_step_of(std::int64_t epoch, const Setup& setup, const RunState* saved) {
  if (saved == nullptr) return epoch * setup.batches_per_epoch;
  const auto& [steps_done, position, evaluation_due] = saved->progress;
  return steps_done + (epoch - position.epoch) * setup.batches_per_epoch - position.batch;
}

// A saved plan is one for the settings of now.
bool settings_agree(const Setup& setup, const RunState& saved) {
  const config::Config was = config::parse(saved.config_toml, "state.json config");
  return was.freeze == setup.config.freeze && was.pipeline == setup.config.pipeline &&
         was.replicas.local == setup.config.replicas.local && was.device == setup.config.device &&
         was.train.deterministic == setup.config.train.deterministic &&
         was.train.micro_batch == setup.config.train.micro_batch && saved.plan.global_batch == setup.global_batch;
}

freeze::Policy policy_of(const Setup& setup) {
  const config::FreezeConfig& freeze = setup.config.freeze;
  freeze::Policy policy{.rule = freeze::rule_of(freeze.policy), .alpha = freeze.alpha};
  if (policy.rule != freeze::Rule::kSchedule) return policy;
  policy.schedule = freeze::parse_schedule(freeze.schedule, "freeze.schedule");
  freeze::require_units(policy.schedule, static_cast<int>(points_of(setup).size()) - 1, "freeze.schedule");
  return policy;
}

// Of all epochs of the run.
int most_frozen_layers(const Setup& setup) {
  const freeze::Policy policy = policy_of(setup);
  const std::vector<int> points = points_of(setup);
  int units = 0, most = 0;
  for (std::int64_t epoch = 1; epoch * setup.batches_per_epoch < setup.total_steps; ++epoch) {
    units =
        freeze::decide(policy, {.epoch = epoch, .units = static_cast<int>(points.size()) - 1, .frozen = units}).frozen;
    most = std::max(most, points[units]);
  }
  return most;
}

// GPT-2's head is its token table, which is with the embeddings.
void require_untied(const Setup& setup, int frozen_layers) {
  models::ModelOptions options = setup.model;
  options.draw_weights = false;
  const models::Model model = models::make_model(options);
  for (std::size_t i = frozen_layers; frozen_layers > 0 && i < model.layers.size(); ++i) {
    for (const nn::Parameter* parameter : model.layers[i]->parameters()) {
      if (parameter->tied_to.empty()) continue;
      throw ConfigError(concat("freeze.policy = \"", setup.config.freeze.policy, "\" cannot freeze ", setup.model.name,
                               ": ", parameter->name, ", which is always trained, is tied to ", parameter->tied_to,
                               "; set freeze.policy = \"none\""));
    }
  }
}

class FreezePlanner {
 public:
  FreezePlanner(const Setup& setup, const RunState* saved)
      : setup_(setup),
        saved_(saved != nullptr && settings_agree(setup, *saved) ? saved : nullptr),
        policy_(policy_of(setup)),
        points_(points_of(setup)) {}

  // Of the epochs from 1 on in which another number of layers freezes, until the run ends.
  [[nodiscard]] std::vector<PlanChange> changes(const RunState* position) {
    std::vector<PlanChange> changes;
    int units = 0;
    for (std::int64_t epoch = 1;; ++epoch) {
      const std::int64_t after = first_step_of(epoch, setup_, position);
      if (after >= setup_.total_steps) return changes;
      const freeze::Decision decision =
          freeze::decide(policy_, {.epoch = epoch, .units = static_cast<int>(points_.size()) - 1, .frozen = units});
      if (decision.frozen == units) continue;
      changes.push_back(change(after, epoch, units, decision));
      units = decision.frozen;
    }
  }

 private:
  PlanChange change(std::int64_t after, std::int64_t epoch, int units_before, const freeze::Decision& decision) {
    PlanChange change{.after = after};
    const int frozen = points_[decision.frozen];
    if (const PlanChange* kept = saved_change(after, frozen)) return *kept;
    const tune::PlanRequest request = plan_request(setup_);
    if (costs_.empty()) prepare(request);
    const auto found = tune::elastic_plan(request, frozen, costs_, step_overheads(setup_, {}), rules_);
    change.plan = found.plan;
    change.freeze = FreezeRecord{.epoch = epoch,
                                 .units = decision.frozen,
                                 .units_before = units_before,
                                 .of_units = static_cast<int>(points_.size()) - 1,
                                 .predicted_before_s = last_predicted_s_,
                                 .predicted_s = found.predicted_s,
                                 .staying_s = found.staying_s};
    last_predicted_s_ = found.predicted_s;
    return change;
  }

  [[nodiscard]] const PlanChange* saved_change(std::int64_t after, int frozen_layers) const {
    if (saved_ == nullptr) return nullptr;
    const auto found = std::ranges::find(saved_->changes, after, &PlanChange::after);
    const bool is_it = found != saved_->changes.end() && found->plan.frozen_layers == frozen_layers;
    return is_it ? &*found : nullptr;
  }

  void prepare(const tune::PlanRequest& request) {
    costs_ = layer_costs(setup_);
    const bool is_free = !setup_.config.train.deterministic;  // times are not the same in every run
    rules_ = {.may_shrink = setup_.config.freeze.elastic && is_free,
              .may_replicate = setup_.config.freeze.elastic && setup_.config.freeze.replicas && is_free,
              .change_s = seconds_of_change(setup_),
              .steps = static_cast<double>(setup_.batches_per_epoch)};
    const Plan first = tune::make_plan(request, costs_, step_overheads(setup_, {}));
    last_predicted_s_ =
        tune::predict_step(first, costs_, request.mean_micro_batch(1), step_overheads(setup_, {})).seconds;
  }

  const Setup& setup_;
  const RunState* saved_;  // whose plans may be kept; null: none
  freeze::Policy policy_;
  std::vector<int> points_;
  std::vector<LayerCost> costs_;  // measured when the first plan is made
  tune::ElasticRules rules_;
  double last_predicted_s_ = 0;
};

}  // namespace

bool freezes(const config::Config& config) { return config.freeze.policy != "none"; }

void check_freezing(const Setup& setup) {
  if (!freezes(setup.config)) return;
  const int most = most_frozen_layers(setup);
  const int stages = virtual_stages(setup.config);
  if (setup.layers - most < stages) {
    throw ConfigError(concat("freeze.policy = \"", setup.config.freeze.policy, "\" freezes up to ", most, " of ",
                             setup.layers, " layers, but pipeline.schedule = \"", setup.config.pipeline.schedule,
                             "\" needs ", stages, " for the stages of a device; freeze fewer, or choose 1f1b"));
  }
  require_untied(setup, most);
}

RunPlans plan_freezing_run(const Setup& setup, const RunState* saved) {
  std::vector<PlanChange> changes = FreezePlanner(setup, saved).changes(saved);
  const std::int64_t steps_done = saved != nullptr ? saved->progress.steps_done : 0;
  const PlanChange* const change = in_force(changes, steps_done);
  const int frozen = change != nullptr ? change->plan.frozen_layers : 0;
  const bool keeps = saved != nullptr && settings_agree(setup, *saved) && saved->plan.frozen_layers == frozen;
  return begin_with(setup, std::move(changes), steps_done, keeps ? &saved->plan : nullptr);
}

}  // namespace sluice::train
