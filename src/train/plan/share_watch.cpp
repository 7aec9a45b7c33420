#include "train/plan/share_watch.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "core/concat.h"
#include "core/divided_up.h"
#include "core/median.h"
#include "core/text.h"
#include "tune/shares.h"

namespace sluice::train {
namespace {

constexpr std::int64_t kMostUnitsPerReplica = 256;  // finer shares bring less than 1 %

// Computing time of the replica's slowest device.
Nanoseconds computing_time(const profiler::StepBreakdown& breakdown, int replica) {
  Nanoseconds longest = 0;
  for (const profiler::SlotBreakdown& slot : breakdown.slots)
    if (slot.replica == ReplicaId{replica}) longest = std::max(longest, slot.forward() + slot.backward());
  return longest;
}

// [part]: its number of units.
std::vector<int> sizes_of(const Parts& parts, std::int64_t units) {
  std::vector<int> sizes;
  for (std::int64_t part = 0; part < parts.number(); ++part)
    sizes.push_back(static_cast<int>(parts.range(units, part).size()));
  return sizes;
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
  const auto sizes = sizes_of(Parts(replicas, list), divided_up(plan.global_batch, share.unit));
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

ShareWatch::ShareWatch(const Setup& setup, const comm::Communicator* others, Report report)
    : setup_(setup), others_(others), report_(std::move(report)) {}

PlanSource ShareWatch::source(PlanSource plans) {
  PlanSource source = plans;
  source.next = [this, plans](std::int64_t steps_done) { return next(steps_done, plans); };
  return source;
}

std::optional<Plan> ShareWatch::next(std::int64_t steps_done, const PlanSource& plans) {
  std::optional<Plan> plan = plans.next(steps_done);
  if (plan) {
    finish();         // the effect of a change can no longer be measured
    change_.reset();  // one that is decided does not come
    slowest_before_.reset();
    const bool keeps = setup_.config.replicas.shares.is_measured() && plan->replicas == plan_.replicas;
    plan->shares = keeps ? plan_.shares : first_shares(setup_, *plan);
  } else if (wanted_) {
    plan = plan_;
    plan->shares = *wanted_;
  }
  wanted_.reset();
  return plan;
}

std::int64_t ShareWatch::units() const {
  const data::Share share = replica_share(setup_, plan_);
  const std::int64_t all = divided_up(plan_.global_batch, share.unit);
  return setup_.config.train.is_reproducible_by_layout() ? all
                                                         : std::min(all, kMostUnitsPerReplica * share.parts.number());
}

void ShareWatch::forget_window() {
  busy_.assign(plan_.replicas, {});
  steps_.clear();
}

void ShareWatch::after_step(const SeenStep& step) {
  if (!setup_.config.replicas.shares.is_measured()) return;
  if (step.plan != plan_) {
    plan_ = step.plan;
    forget_window();
    gained_ = 0;
  }
  if (step.stats.samples != plan_.global_batch) return;  // the last batch of an epoch may be short
  for (int replica = 0; replica < plan_.replicas; ++replica)
    busy_[replica].push_back(computing_time(step.breakdown, replica));
  steps_.push_back(step.breakdown.step);
  if (std::ssize(steps_) < kWindow) return;
  if (change_) report_change(upper_median(steps_));
  if (units() >= replica_share(setup_, plan_).parts.number()) decide(step.number);
  forget_window();
}

std::vector<Nanoseconds> ShareWatch::unit_times() const {
  const data::Share share = replica_share(setup_, plan_);
  const Parts& parts = share.parts;
  const at::Tensor times = at::zeros({parts.number()}, at::kLong);
  const auto data = std::span(times.mutable_data_ptr<std::int64_t>(), parts.number());
  for (int replica = 0; replica < plan_.replicas; ++replica) data[share.first + replica] = upper_median(busy_[replica]);
  if (others_ != nullptr) others_->all_reduce(times).wait();
  for (std::int64_t replica = 0; replica < parts.number(); ++replica)
    data[replica] /= std::max<std::int64_t>(parts.range(units(), replica).size(), 1);
  return {data.begin(), data.end()};
}

void ShareWatch::decide(std::int64_t steps_done) {
  std::vector<Nanoseconds> times = unit_times();
  for (Nanoseconds& time : times) time = std::max<Nanoseconds>(time, 1);
  const std::vector<int> now = sizes_of(Parts(std::ssize(times), plan_.shares), units());
  const std::vector<int> then = tune::fastest_shares(times, units());
  const Nanoseconds before = tune::slowest(times, now), after = tune::slowest(times, then);
  // If other programs come and go, shares that were right are soon wrong.
  if (slowest_before_) windows_ = before < *slowest_before_ ? kWindows : std::min(2 * windows_, kMostWindows);
  slowest_before_.reset();
  const bool gains = static_cast<double>(before - after) >= kLeastGain * static_cast<double>(before);
  gained_ = gains ? gained_ + 1 : 0;
  if (gained_ < windows_) return;
  const Nanoseconds step = upper_median(steps_);
  change_ = {.before = plan_.shares, .predicted = step - (before - after), .measured_before = step};
  changed_at_ = steps_done;
  slowest_before_ = before;
  wanted_ = then;
}

void ShareWatch::report_change(std::optional<Nanoseconds> measured) {
  const auto shares_of = [&](const std::vector<int>& shares) {
    return shares.empty() ? std::vector<int>(replica_share(setup_, plan_).parts.number(), 1) : shares;
  };
  nlohmann::ordered_json fields{{"step", changed_at_},
                                {"why", "the replicas compute at different speeds"},
                                {"shares_before", shares_of(change_->before)},
                                {"shares", shares_of(plan_.shares)},
                                {"measured_before_ms", to_ms(change_->measured_before)},
                                {"predicted_ms", to_ms(change_->predicted)}};
  fields["measured_ms"] = measured ? nlohmann::ordered_json(to_ms(*measured)) : nullptr;
  report_("replan", fields);
  change_.reset();
}

void ShareWatch::finish() {
  if (change_ && !wanted_) report_change(std::nullopt);
}

}  // namespace sluice::train
