#include "train/plan/replan_watch.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "core/clock.h"
#include "core/concat.h"
#include "core/divided_up.h"
#include "core/median.h"
#include "core/text.h"
#include "train/plan/choose_plan.h"
#include "train/plan/freeze_planner.h"

namespace sluice::train {
namespace {

constexpr std::int64_t kMostUnitsPerReplica = 256;  // finer shares bring less than 1 %

// Empty: the cut stays.
std::vector<LayerCost> layers_to_cut(const Setup& setup, const RunPlans& plans) {
  const bool is_mixed = plans.now.recompute_any() && !plans.now.recompute_all();
  return is_mixed && !setup.config.pipeline.recompute.is_open() ? std::vector<LayerCost>() : plans.costs;
}

tune::ReplanRules rules_of(const Setup& setup, const RunPlans& plans) {
  tune::ReplanRules rules{.shares_change = setup.config.replicas.shares.list.empty(),
                          .layers = layers_to_cut(setup, plans),
                          .first = plans.now,
                          .shares_memory = shares_memory(setup)};
  if (rules.layers.empty()) return rules;
  rules.memory_limit = planned_memory(setup);
  if (plans.now.recompute_all()) rules.recompute = {tune::Recompute::kLayer};
  if (setup.config.pipeline.recompute.is_open()) rules.recompute = {tune::Recompute::kOpen};
  return rules;
}

double seconds_now() { return to_s(now_ns()); }

std::string in_words(const std::vector<int>& numbers, const char* separator) {
  std::vector<std::string> words;
  for (const int number : numbers) words.push_back(std::to_string(number));
  return join(words, separator);
}

}  // namespace

std::vector<int> first_shares(const Setup& setup, const Plan& plan) {
  const std::vector<int>& list = setup.config.replicas.shares.list;
  const data::Share share = replica_share(setup, plan);
  if (list.empty()) return {};
  const std::int64_t replicas = share.parts.number();
  if (std::ssize(list) != replicas) {
    throw ConfigError("replicas.shares has ", counted(list.size(), "share"), ", but the run has ",
                      counted(replicas, "replica"), " (", plan.replicas, " in each of ",
                      counted(setup.process.processes, "process"), "); give one share for each");
  }
  const auto sizes = Parts(replicas, list).sizes(divided_up(plan.global_batch, share.unit));
  const auto empty = std::ranges::find(sizes, 0);
  if (empty != sizes.end()) {
    throw ConfigError("replicas.shares gives replica ", empty - sizes.begin(), " no ",
                      setup.config.train.is_reproducible_by_layout() ? "micro-batch" : "sample", " of a batch of ",
                      plan.global_batch, " samples; give it a larger share, or choose a larger train.global_batch");
  }
  return list;
}

void check_shares(const Setup& setup) {
  static_cast<void>(
      first_shares(setup, Plan{.replicas = setup.config.replicas.local, .global_batch = setup.global_batch}));
}

ReplanWatch::ReplanWatch(const Setup& setup, const comm::Communicator* others, const RunPlans& plans, Report report)
    : setup_(setup),
      others_(others),
      report_(std::move(report)),
      is_measured_(setup.config.replicas.shares.is_measured() || setup.config.pipeline.replans()),
      replanner_(rules_of(setup, plans)) {}

PlanSource ReplanWatch::source(PlanSource plans) {
  PlanSource source = plans;
  source.next = [this, plans](std::int64_t steps_done) { return next(steps_done, plans); };
  source.refused = [this, plans](std::int64_t steps_done) { refused(steps_done, plans); };
  return source;
}

std::optional<Plan> ReplanWatch::next(std::int64_t steps_done, const PlanSource& plans) {
  std::optional<Plan> plan = plans.next(steps_done);
  if (plan) {
    finish();         // the effect of a change can no longer be measured
    change_.reset();  // one that is decided does not come
    slowest_before_.reset();
    made_.reset();
    const bool keeps = setup_.config.replicas.shares.is_measured() && plan->replicas == plan_.replicas;
    plan->shares = keeps ? plan_.shares : first_shares(setup_, *plan);
  } else if (wanted_) {
    made_ = wanted_;
    changed_at_ = steps_done;
    plan = wanted_->plan;
  }
  wanted_.reset();
  return plan;
}

void ReplanWatch::refused(std::int64_t steps_done, const PlanSource& plans) {
  if (!made_ || changed_at_ != steps_done) return plans.refused(steps_done);
  made_.reset();
  change_.reset();
  slowest_before_.reset();
  windows_ = kMostWindows;
}

std::vector<double> ReplanWatch::work_ratios(const Plan& plan) const {
  return made_ && made_->plan == plan ? made_->work_ratios : std::vector<double>();
}

std::int64_t ReplanWatch::units() const {
  const data::Share share = replica_share(setup_, plan_);
  const std::int64_t all = divided_up(plan_.global_batch, share.unit);
  return setup_.config.train.is_reproducible_by_layout() ? all
                                                         : std::min(all, kMostUnitsPerReplica * share.parts.number());
}

void ReplanWatch::forget_window() {
  busy_.assign(plan_.replicas, std::vector<std::vector<Nanoseconds>>(plan_.devices()));
  steps_.clear();
}

void ReplanWatch::after_step(const SeenStep& step) {
  if (!is_measured_) return;
  if (step.plan != plan_) {
    plan_ = step.plan;
    forget_window();
    gained_ = 0;
  }
  if (step.stats.samples != plan_.global_batch) return;  // the last batch of an epoch may be short
  for (const profiler::SlotBreakdown& slot : step.breakdown.slots)
    busy_.at(index(slot.replica)).at(index(slot.device)).push_back(slot.forward() + slot.backward());
  steps_.push_back(step.breakdown.step);
  if (std::ssize(steps_) < kWindow) return;
  if (change_) report_change(upper_median(steps_));
  decide(step.number);
  forget_window();
}

tune::MeasuredStep ReplanWatch::measured() const {
  const data::Share share = replica_share(setup_, plan_);
  const std::int64_t replicas = share.parts.number(), devices = plan_.devices();
  const at::Tensor times = at::zeros({replicas, devices}, at::kLong);
  const auto own = std::span(times.mutable_data_ptr<std::int64_t>(), times.numel());
  for (std::int64_t replica = 0; replica < plan_.replicas; ++replica) {
    for (std::int64_t device = 0; device < devices; ++device)
      own[(share.first + replica) * devices + device] = upper_median(busy_[replica][device]);
  }
  if (others_ != nullptr) others_->all_reduce(times).wait();
  tune::MeasuredStep measured{.plan = plan_, .computing = {}, .units = units()};
  for (std::int64_t replica = 0; replica < replicas; ++replica) {
    auto& of_replica = measured.computing.emplace_back();
    for (std::int64_t device = 0; device < devices; ++device)
      of_replica.push_back(to_s(std::max<Nanoseconds>(own[replica * devices + device], 1)));
  }
  return measured;
}

void ReplanWatch::decide(std::int64_t steps_done) {
  const tune::MeasuredStep of_all = measured();
  std::string text = is_root() ? decision(of_all, steps_done) : "";
  if (others_ != nullptr) text = comm::broadcast_text(*others_, text, /*root=*/0);
  if (text.empty()) return;
  const auto json = nlohmann::json::parse(text);
  wanted_ = {.plan = plan_, .work_ratios = json.at("work_ratios")};
  wanted_->plan.shares = json.at("shares").get<std::vector<int>>();
  wanted_->plan.partition = {json.at("partition").get<std::vector<int>>()};
  wanted_->plan.recompute = json.at("recompute").get<std::vector<bool>>();
}

// The plan that runs if it stays.
tune::Replanned ReplanWatch::choose(const tune::MeasuredStep& measured, std::int64_t steps_done) {
  const auto leaves_out = [&](const Plan& plan) {
    return std::ranges::count(Parts(std::ssize(measured.computing), plan.shares).sizes(measured.units), 0) > 0;
  };
  const bool was_trial = std::exchange(is_trial_, false);
  tune::Replanned found = replanner_.plan_for(measured, seconds_now);
  // If other programs come and go, a plan that was right is soon wrong.
  if (slowest_before_) windows_ = found.before_s < *slowest_before_ ? kWindows : std::min(2 * windows_, kMostWindows);
  slowest_before_.reset();
  const bool gains = found.before_s - found.after_s >= kLeastGain * found.before_s;
  gained_ = gains ? gained_ + 1 : 0;
  if (gains && gained_ >= (was_trial ? 1 : windows_) && is_won_back(found, steps_done)) {
    slowest_before_ = found.before_s;
    if (!leaves_out(found.plan)) trial_s_ = kTrialS;
    tried_at_s_ = seconds_now();
    return found;
  }
  const bool is_time = leaves_out(plan_) && seconds_now() - tried_at_s_ >= trial_s_;
  if (is_time && measured.units >= std::ssize(measured.computing)) {
    is_trial_ = true;
    trial_s_ = std::min(2 * trial_s_, kMostTrialS);
    tried_at_s_ = seconds_now();
    return replanner_.trial_plan(measured);
  }
  found.plan = plan_;
  return found;
}

std::string ReplanWatch::decision(const tune::MeasuredStep& measured, std::int64_t steps_done) {
  const tune::Replanned found = choose(measured, steps_done);
  if (found.plan == plan_) return "";
  const Nanoseconds step = upper_median(steps_);
  change_ = {
      .why = is_trial_ ? "a replica without a share is tried again" : "devices compute at other speeds than planned",
      .before = plan_,
      .predicted = step - static_cast<Nanoseconds>((found.before_s - found.after_s) * 1e9),
      .measured_before = step};
  const double samples = static_cast<double>(plan_.global_batch) / static_cast<double>(measured.computing.size());
  std::vector<double> ratios = replanner_.work_ratios(plan_, found.plan, samples);
  if (ratios.empty()) ratios.assign(plan_.devices(), 1);
  return nlohmann::json{{"shares", found.plan.shares},
                        {"partition", found.plan.partition.layers_per_stage},
                        {"recompute", found.plan.recompute},
                        {"work_ratios", ratios}}
      .dump();
}

bool ReplanWatch::is_won_back(const tune::Replanned& found, std::int64_t steps_done) {
  if (found.plan.partition == plan_.partition) return true;
  if (!change_s_) change_s_ = seconds_of_change(setup_);
  const double left_s = static_cast<double>(setup_.total_steps - steps_done) * to_s(upper_median(steps_));
  return (1 - found.after_s / found.before_s) * std::min(left_s, kWonBackS) >= *change_s_;
}

void ReplanWatch::report_change(std::optional<Nanoseconds> measured) {
  const auto shares_of = [&](const Plan& plan) {
    return plan.shares.empty() ? std::vector<int>(replica_share(setup_, plan_).parts.number(), 1) : plan.shares;
  };
  const Plan& before = change_->before;
  nlohmann::ordered_json fields{{"step", changed_at_}, {"why", change_->why}};
  std::vector<std::string> changes;
  if (plan_.shares != before.shares) {
    fields.update({{"shares_before", shares_of(before)}, {"shares", shares_of(plan_)}});
    changes.push_back(
        concat("shares ", in_words(shares_of(plan_), " : "), " instead of ", in_words(shares_of(before), " : ")));
  }
  if (plan_.partition != before.partition) {
    const auto &old_cut = before.partition.layers_per_stage, &cut = plan_.partition.layers_per_stage;
    fields.update({{"partition_before", old_cut}, {"partition", cut}});
    changes.push_back(concat("stages of ", in_words(cut, ", "), " layers instead of ", in_words(old_cut, ", ")));
  }
  fields.update({{"measured_before_ms", to_ms(change_->measured_before)}, {"predicted_ms", to_ms(change_->predicted)}});
  fields["measured_ms"] = measured ? nlohmann::ordered_json(to_ms(*measured)) : nullptr;
  report_(
      concat("after step ", changed_at_, ": ", join(changes, "; "), ": ",
             measured ? concat(fixed(to_ms(*measured), 1), " ms a step, ") : "", fixed(to_ms(change_->predicted), 1),
             " predicted, ", fixed(to_ms(change_->measured_before), 1), " before"),
      fields);
  change_.reset();
}

void ReplanWatch::finish() {
  if (change_ && !wanted_) report_change(std::nullopt);
}

}  // namespace sluice::train
