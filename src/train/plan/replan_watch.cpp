#include "train/plan/replan_watch.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "core/clock.h"
#include "core/concat.h"
#include "core/divided_up.h"
#include "core/log.h"
#include "core/median.h"
#include "core/text.h"
#include "train/plan/choose_plan.h"
#include "train/plan/freeze_planner.h"
#include "train/plan/plan_description.h"

namespace sluice::train {
namespace {

constexpr std::int64_t kMostUnitsPerReplica = 256;  // finer shares bring less than 1 %

// Empty: the cut stays.
std::vector<LayerCost> layers_to_cut(const Setup& setup, const RunPlans& plans) {
  const bool is_mixed = plans.now.recompute_any() && !plans.now.recompute_all();
  if (plans.costs.empty() || !is_mixed || setup.config.pipeline.recompute.is_open()) return plans.costs;
  log_info("pipeline.replan changes shares only, because pipeline.recompute differs between stages");
  return {};
}

// In rank 0: of all processes.
std::uint64_t smallest_limit(const Setup& setup, const comm::Communicator* others) {
  std::uint64_t least = planned_memory(setup);
  if (!setup.config.pipeline.replans() || others == nullptr) return least;
  for (const std::string& text : comm::gather_texts(*others, std::to_string(least), /*root=*/0)) {
    const std::uint64_t limit = std::stoull(text);
    if (limit > 0) least = least > 0 ? std::min(least, limit) : limit;
  }
  return least;
}

tune::ReplanRules rules_of(const Setup& setup, const RunPlans& plans, std::uint64_t memory_limit) {
  tune::ReplanRules rules{.shares_change = setup.config.replicas.shares.list.empty(),
                          .layers = layers_to_cut(setup, plans),
                          .preferred = plans.now,
                          .memory_limit = memory_limit,
                          .shares_memory = shares_memory(setup)};
  if (plans.now.recompute_all()) rules.recompute = {tune::Recompute::kLayer};
  if (setup.config.pipeline.recompute.is_open()) {
    rules.recompute = {tune::Recompute::kOpen};
  } else if (const auto& partition = setup.config.pipeline.partition) {
    rules.preferred->partition = {*partition};  // a resumed run may have another one
  }
  return rules;
}

void log_what_is_unexpected(const Setup& setup, const Plan& plan) {
  if (!setup.config.pipeline.replans() || setup.process.rank != 0) return;
  if (plan.stages() == 1 && count_replicas(setup) == 1) log_info("pipeline.replan has no effect with one device");
  const auto& partition = setup.config.pipeline.partition;
  if (partition && *partition != plan.partition.layers_per_stage) {
    log_info("pipeline.replan: goes on with layers ", layers_in_words(plan.partition), " instead of ",
             layers_in_words({*partition}), " (pipeline.partition)");
  }
}

double seconds_now() { return to_s(now_ns()); }

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
      decides_by_times_(setup.config.replicas.shares.is_measured() || setup.config.pipeline.replans()),
      replanner_(rules_of(setup, plans, smallest_limit(setup, others))),
      change_s_(plans.costs.empty() ? 0 : seconds_of_change(setup)) {
  log_what_is_unexpected(setup, plans.now);
}

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
    pace_.forget();
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
  pace_.refused();
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
  dropped_ = 0;
  busy_.assign(plan_.replicas, std::vector<std::vector<Nanoseconds>>(plan_.devices()));
  steps_.clear();
}

void ReplanWatch::after_step(const SeenStep& step) {
  if (!decides_by_times_) return;
  since_trial_s_ += to_s(step.breakdown.step);
  if (step.plan != plan_) {
    plan_ = step.plan;
    forget_window();
    pace_.begin_again();
  }
  if (step.stats.samples != plan_.global_batch) return;  // the last batch of an epoch may be short
  for (const profiler::SlotBreakdown& slot : step.breakdown.slots)
    busy_.at(index(slot.replica)).at(index(slot.device)).push_back(slot.forward() + slot.backward());
  steps_.push_back(step.breakdown.step);
  dropped_ += step.breakdown.dropped;
  if (std::ssize(steps_) < kWindow) return;
  if (change_) report_change(upper_median(steps_));
  decide(step.number);
  forget_window();
}

std::optional<tune::MeasuredStep> ReplanWatch::exchange_times() const {
  const data::Share share = replica_share(setup_, plan_);
  const std::int64_t replicas = share.parts.number(), devices = plan_.devices();
  const at::Tensor times = at::zeros({replicas * devices + 1}, at::kLong);  // and the number of dropped spans
  const auto own = std::span(times.mutable_data_ptr<std::int64_t>(), times.numel());
  own.back() = static_cast<std::int64_t>(dropped_);
  for (std::int64_t replica = 0; replica < plan_.replicas; ++replica) {
    for (std::int64_t device = 0; device < devices; ++device)
      own[(share.first + replica) * devices + device] = upper_median(busy_[replica][device]);
  }
  if (others_ != nullptr) others_->all_reduce(times).wait();
  if (own.back() > 0) return std::nullopt;
  tune::MeasuredStep of_all{.plan = plan_, .computing = {}, .units = units()};
  for (std::int64_t replica = 0; replica < replicas; ++replica) {
    auto& of_replica = of_all.computing.emplace_back();
    for (std::int64_t device = 0; device < devices; ++device)
      of_replica.push_back(to_s(std::max<Nanoseconds>(own[replica * devices + device], 1)));
  }
  return of_all;
}

void ReplanWatch::decide(std::int64_t steps_done) {
  const std::optional<tune::MeasuredStep> times = exchange_times();
  if (!times) return;
  std::string text = setup_.process.rank == 0 ? decision(*times, steps_done) : "";
  if (others_ != nullptr) text = comm::broadcast_text(*others_, text, /*root=*/0);
  if (text.empty()) return;
  const auto json = nlohmann::json::parse(text);
  wanted_ = {.plan = plan_from(json.at("plan")), .work_ratios = json.at("work_ratios")};
}

tune::Replanned ReplanWatch::choose(const tune::MeasuredStep& times, std::int64_t steps_done) {
  const auto leaves_out = [&](const Plan& plan) {
    return std::ranges::count(Parts(std::ssize(times.computing), plan.shares).sizes(times.units), 0) > 0;
  };
  const bool was_trial = std::exchange(is_trial_, false);
  tune::Replanned found = better_of(replanner_.plans_for(times, seconds_now), steps_done);
  if (pace_.add(found.before_s, found.after_s, was_trial)) {
    pace_.changed(found.before_s);
    since_trial_s_ = 0;
    if (!leaves_out(found.plan)) trial_s_ = kTrialS;
    return found;
  }
  const bool may_try = setup_.config.replicas.shares.list.empty() && leaves_out(plan_);
  if (may_try && since_trial_s_ >= trial_s_ && times.units >= std::ssize(times.computing)) {
    is_trial_ = true;
    since_trial_s_ = 0;
    trial_s_ = std::min(2 * trial_s_, kMostTrialS);
    return replanner_.trial_plan(times);
  }
  found.plan = plan_;
  return found;
}

std::string ReplanWatch::decision(const tune::MeasuredStep& times, std::int64_t steps_done) {
  const tune::Replanned found = choose(times, steps_done);
  if (found.plan == plan_) return "";
  const Nanoseconds step = upper_median(steps_);
  change_ = {.why = is_trial_ ? "a replica without a share is tried again" : "measured speeds of the devices",
             .before = plan_,
             .predicted = step - from_s(found.before_s - found.after_s),
             .measured_before = step,
             .slowness = replanner_.slowness()};
  const double samples = static_cast<double>(plan_.global_batch) / static_cast<double>(times.computing.size());
  return nlohmann::json{{"plan", plan_json(found.plan)},
                        {"work_ratios", replanner_.work_ratios(plan_, found.plan, samples)}}
      .dump();
}

tune::Replanned ReplanWatch::better_of(const tune::Replanner::Best& best, std::int64_t steps_done) const {
  const auto& [stay, move] = best;
  if (move.plan.partition == stay.plan.partition) return stay;
  const double left_s = static_cast<double>(setup_.total_steps - steps_done) * to_s(upper_median(steps_));
  const double saved_share = (stay.after_s - move.after_s) / stay.before_s;
  return saved_share * std::min(left_s, kWonBackS) >= change_s_ ? move : stay;
}

void ReplanWatch::report_change(std::optional<Nanoseconds> step_after) {
  const auto shares_of = [&](const Plan& plan) {
    return plan.shares.empty() ? std::vector<int>(replica_share(setup_, plan).parts.number(), 1) : plan.shares;
  };
  const Plan &before = change_->before, &after = made_.value().plan;
  nlohmann::ordered_json fields{{"step", changed_at_}, {"why", change_->why}};
  std::vector<std::string> changes;
  if (after.partition != before.partition) {
    fields.update(
        {{"partition_before", before.partition.layers_per_stage}, {"partition", after.partition.layers_per_stage}});
    changes.push_back(
        concat("layers ", layers_in_words(after.partition), " instead of ", layers_in_words(before.partition)));
  }
  if (after.shares != before.shares) {
    fields.update({{"shares_before", shares_of(before)}, {"shares", shares_of(after)}});
    changes.push_back(concat("shares ", percentages(shares_of(after)), " instead of ", percentages(shares_of(before))));
  }
  fields.update({{"measured_before_ms", to_ms(change_->measured_before)}, {"predicted_ms", to_ms(change_->predicted)}});
  fields["slowness"] = change_->slowness;
  fields["measured_ms"] = step_after ? nlohmann::ordered_json(to_ms(*step_after)) : nullptr;
  report_(concat("the change after step ", changed_at_, " (", change_->why, "): ", join(changes, ", "), "; ",
                 step_after ? concat(fixed(to_ms(*step_after), 1), " ms a step, ") : "", "predicted ",
                 fixed(to_ms(change_->predicted), 1), ", before ", fixed(to_ms(change_->measured_before), 1),
                 step_after >= change_->measured_before ? "; steps did not become shorter" : ""),
          fields);
  change_.reset();
}

void ReplanWatch::finish() {
  if (change_ && !wanted_) report_change(std::nullopt);
}

}  // namespace sluice::train
