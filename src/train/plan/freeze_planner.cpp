#include "train/plan/freeze_planner.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "core/clock.h"
#include "core/log.h"
#include "data/feature_slabs.h"
#include "freeze/schedule_text.h"
#include "models/freeze_points.h"
#include "models/model.h"
#include "train/plan/choose_plan.h"
#include "tune/predict.h"

namespace sluice::train {
namespace {

double seconds_of_one_change(const Setup& setup) {
  const Nanoseconds begin = now_ns();
  const models::Model model = models::make_model(setup.model);
  const Nanoseconds made = now_ns();
  for (const auto& layer : model.layers) {
    for (const nn::Parameter* parameter : layer->parameters()) (void)parameter->value.detach().clone();
  }
  const Nanoseconds copied = now_ns();
  const int slots = setup.config.pipeline.stages * setup.config.replicas.local;
  return to_s(made - begin) * slots + to_s(copied - made) * 6;
}

}  // namespace

// Each replica makes the model again and copies its state (up to three times its parameters) out and in. For small
// models the result is the fastest of three, because a busy machine distorts one.
double seconds_of_change(const Setup& setup) {
  constexpr double kSmall = 0.1;
  double fastest = seconds_of_one_change(setup);
  for (int again = 0; again < 2 && fastest < kSmall; ++again) fastest = std::min(fastest, seconds_of_one_change(setup));
  return fastest;
}

std::vector<int> freeze_points_of(const Setup& setup) {
  return models::freeze_points(
      setup.model, setup.config.freeze.unit == "half" ? models::FreezeUnit::kHalfBlock : models::FreezeUnit::kBlock);
}

freeze::Policy policy_of(const Setup& setup) {
  const config::FreezeConfig& freeze = setup.config.freeze;
  freeze::Policy policy{.rule = freeze::rule_of(freeze.policy), .alpha = freeze.alpha, .percentile = freeze.percentile};
  if (policy.rule != freeze::Rule::kSchedule) return policy;
  policy.schedule = freeze::parse_schedule(freeze.schedule, "freeze.schedule");
  freeze::require_units(policy.schedule, static_cast<int>(freeze_points_of(setup).size()) - 1, "freeze.schedule");
  return policy;
}

double running_share(const Setup& setup, const FrozenTime& time, std::int64_t kept_since, std::uint64_t row_bytes) {
  const config::Config& config = setup.config;
  if (!keeps_features(config) || time.end <= time.epoch) return 1;
  const std::int64_t views = std::max<std::int64_t>(config.data.views, 1);
  const std::int64_t epochs = time.end - time.epoch;
  const std::int64_t of_new_views = std::clamp<std::int64_t>(kept_since + views - time.epoch, 0, epochs);
  const double share = static_cast<double>(of_new_views) / static_cast<double>(epochs);

  const auto rows = static_cast<double>(setup.train_set->size() * views / setup.process.processes);
  const double bf16 = setup.model.in_bf16 ? 1 : config.train.precision == "fp64" ? 0.25 : 0.5;  // of a row
  const double kept_bytes =
      static_cast<double>(row_bytes) * (config.freeze.cache_precision == "bf16" ? bf16 : 1) + data::kIndexBytes;
  const auto in_memory = config.freeze.cache == "disk" ? 0.0 : static_cast<double>(config.freeze.cache_bytes.bytes);
  const double room = in_memory + static_cast<double>(config.freeze.cache_disk_bytes.bytes);
  const double kept = std::min(1.0, room / (rows * kept_bytes));
  return share + (1 - share) * (1 - kept);
}

void FreezePlanner::prepare() {
  if (!costs_.empty()) return;
  costs_ = layer_costs(setup_);
  const bool is_free = !setup_.config.train.deterministic;  // deterministic runs must not depend on measured times
  rules_.may_shrink = setup_.config.freeze.elastic && is_free;
  rules_.may_replicate = rules_.may_shrink && setup_.config.freeze.replicas;
  if (setup_.config.freeze.elastic && !is_free && setup_.config.pipeline.stages > 1)
    log_info("freeze.elastic has no effect: it uses measured times, and train.deterministic = true forbids them");
  rules_.change_s = seconds_of_change(setup_);
  rules_.steps = static_cast<double>(setup_.batches_per_epoch);
  if (last_predicted_s_) return;
  const tune::PlanRequest request = plan_request(setup_);
  const tune::StepOverheads overheads = step_overheads(setup_, {});
  const Plan first = tune::make_plan(request, costs_, overheads);
  last_predicted_s_ = tune::predict_step(first, costs_, request.mean_micro_batch(1), overheads).seconds;
}

void FreezePlanner::follow(const Plan& plan, std::optional<double> predicted_s) {
  rules_.current = plan;
  if (predicted_s) last_predicted_s_ = predicted_s;
}

void FreezePlanner::note(std::int64_t epoch, int units_before, int units) {
  if (units < units_before) kept_since_.reset();
  if (!kept_since_ && units > 0) kept_since_ = std::max(epoch, first_epoch_);
}

PlanChange FreezePlanner::change(const FrozenTime& time, int units_before, const freeze::Decision& decision) {
  prepare();
  const int frozen_layers = points_.at(decision.frozen);
  note(time.epoch, units_before, decision.frozen);
  tune::StepOverheads overheads = step_overheads(setup_, {});
  if (kept_since_)
    overheads.frozen_share = running_share(setup_, time, *kept_since_, costs_.at(frozen_layers - 1).output_bytes);
  const auto found = tune::elastic_plan(plan_request(setup_), frozen_layers, costs_, overheads, rules_);
  if (!found.why_it_stays.empty())
    log_info(describe_freezing(time.epoch, decision.frozen, units()), ": ", found.why_it_stays);
  PlanChange change{.after = time.after,
                    .plan = found.plan,
                    .freeze = FreezeRecord{.epoch = time.epoch,
                                           .units = decision.frozen,
                                           .units_before = units_before,
                                           .of_units = units(),
                                           .predicted_before_s = last_predicted_s_.value(),
                                           .predicted_s = found.predicted_s,
                                           .staying_s = found.staying_s,
                                           .terms = decision.terms}};
  follow(found.plan, found.predicted_s);
  return change;
}

}  // namespace sluice::train
