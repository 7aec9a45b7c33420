#include "tune/replan.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/clock.h"
#include "core/parts.h"
#include "pipeline/schedule/inspect.h"
#include "pipeline/schedule/plan_schedule.h"
#include "tune/predict.h"
#include "tune/shares.h"

namespace sluice::tune {
namespace {

double mean_samples(const MeasuredStep& measured) {
  return static_cast<double>(measured.plan.global_batch) / static_cast<double>(measured.computing.size());
}

double mean_units(const MeasuredStep& measured) {
  return static_cast<double>(measured.units) / static_cast<double>(measured.computing.size());
}

std::vector<Nanoseconds> whole(const std::vector<double>& seconds) {
  std::vector<Nanoseconds> times;
  for (const double time : seconds) times.push_back(std::max<Nanoseconds>(std::llround(time * 1e9), 1));
  return times;
}

double slowest_of(const std::vector<double>& times, const std::vector<std::int64_t>& units) {
  return to_s(slowest(whole(times), units));
}

Plan with_cut(Plan plan, const Partition& partition, const std::vector<bool>& recompute) {
  plan.partition = partition;
  plan.recompute = recompute;
  return plan;
}

bool is_alike(const std::vector<std::vector<double>>& a, const std::vector<std::vector<double>>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t replica = 0; replica < a.size(); ++replica) {
    if (a[replica].size() != b[replica].size()) return false;
    for (std::size_t device = 0; device < a[replica].size(); ++device)
      if (std::abs(std::log(a[replica][device] / b[replica][device])) > Replanner::kSameSlowness) return false;
  }
  return true;
}

}  // namespace

// Of a replica with an equal share, in a step.
std::vector<double> Replanner::work(const Plan& plan, double replica_samples) const {
  const StepCosts costs = step_costs(plan, rules_.layers, replica_samples);
  const std::vector<int> owners = pipeline::stage_owners(pipeline::make_train_schedule(plan, plan.chunks));
  std::vector<double> seconds(plan.devices(), costs.frozen_s);
  for (std::size_t s = 0; s < costs.stages.size(); ++s) {
    const pipeline::StepCost& stage = costs.stages[s];
    seconds[owners[s]] +=
        plan.chunks * (stage.forward + stage.whole_backward()) + stage.first_forward + stage.first_backward;
  }
  return seconds;
}

std::vector<double> Replanner::work_ratios(const Plan& now, const Plan& then, double replica_samples) const {
  if (rules_.layers.empty()) return {};
  std::vector<double> ratios = work(then, replica_samples);
  const std::vector<double> before = work(now, replica_samples);
  for (std::size_t device = 0; device < ratios.size(); ++device)
    ratios[device] = before.at(device) > 0 ? ratios[device] / before[device] : 1;
  return ratios;
}

void Replanner::take(const MeasuredStep& measured) {
  const std::int64_t replicas = std::ssize(measured.computing);
  const bool has_costs = !rules_.layers.empty();
  const std::vector<double> planned =
      has_costs ? work(measured.plan, mean_samples(measured)) : std::vector<double>(measured.plan.devices(), 1);
  const std::vector<std::int64_t> units = Parts(replicas, measured.plan.shares).sizes(measured.units);
  if (std::ssize(slowness_) != replicas || std::ssize(slowness_[0]) != std::ssize(planned))
    slowness_.assign(replicas, std::vector<double>(planned.size(), 1));
  for (std::int64_t replica = 0; replica < replicas; ++replica) {
    if (units[replica] == 0) continue;
    const double part = static_cast<double>(units[replica]) / (has_costs ? mean_units(measured) : 1);
    for (std::size_t device = 0; device < planned.size(); ++device) {
      const double seconds = measured.computing[replica].at(device);
      slowness_[replica][device] = planned[device] > 0 ? seconds / (planned[device] * part) : 1;
    }
  }
}

// [replica]: of a unit. Without costs it is the time of the slowest device.
std::vector<double> Replanner::replica_times(const MeasuredStep& measured, const Plan& plan) const {
  std::vector<double> times;
  for (const std::vector<double>& of_replica : slowness_) {
    if (rules_.layers.empty()) {
      times.push_back(std::ranges::max(of_replica));
      continue;
    }
    StepOverheads overheads;
    overheads.slowness = of_replica;
    times.push_back(predict_step(plan, rules_.layers, mean_samples(measured), overheads).seconds /
                    mean_units(measured));
  }
  return times;
}

Replanned Replanner::with_shares(const MeasuredStep& measured, const Plan& plan,
                                 const std::vector<double>& times) const {
  const std::vector<std::int64_t> units = Parts(std::ssize(times), plan.shares).sizes(measured.units);
  Replanned result{.plan = plan, .before_s = slowest_of(times, units)};
  result.after_s = result.before_s;
  if (!rules_.shares_change) return result;
  const std::vector<std::int64_t> shares = fastest_shares(whole(times), measured.units);
  const double after_s = slowest_of(times, shares);
  if (after_s >= result.before_s) return result;
  result.after_s = after_s;
  result.plan.shares.assign(shares.begin(), shares.end());
  return result;
}

void Replanner::add_best_cut(const MeasuredStep& measured, std::vector<double> slowness,
                             const std::function<double()>& clock) {
  const double least = std::ranges::min(slowness);
  for (double& own : slowness) own /= least;
  const Plan& plan = measured.plan;
  const int replicas = static_cast<int>(measured.computing.size());
  SearchSpace space{.most_slots = plan.devices() * plan.replicas,
                    .processes = replicas / plan.replicas,
                    .devices = {plan.devices()},
                    .replicas = {plan.replicas},
                    .chunks = {plan.chunks},
                    .batches = {plan.global_batch},
                    .schedules = {{plan.schedule, plan.virtual_stages, plan.schedule_text}},
                    .recompute = rules_.recompute,
                    .frozen_layers = plan.frozen_layers,
                    .memory_limit = rules_.memory_limit,
                    .shares_memory = rules_.shares_memory};
  space.costs_of = [&](const Plan&) {
    SlotCosts costs{.layers = rules_.layers};
    costs.overheads.slowness = slowness;
    return costs;
  };
  const SearchResult found = search_plans(space, {.seconds = kSearchSeconds, .clock = clock});
  if (!found.best.empty()) cuts_.push_back({found.best[0].plan.partition, found.best[0].plan.recompute});
}

// The cut for the slowest replica, and one in which each device counts as its slowest replica.
void Replanner::search(const MeasuredStep& measured, const std::function<double()>& clock) {
  if (is_alike(slowness_, searched_)) return;
  searched_ = slowness_;
  cuts_.clear();
  const std::vector<double> times = replica_times(measured, measured.plan);
  std::vector<double> most = slowness_.front();
  for (const std::vector<double>& of_replica : slowness_) {
    for (std::size_t device = 0; device < most.size(); ++device)
      most[device] = std::max(most[device], of_replica[device]);
  }
  const std::vector<double>& slowest_replica = slowness_[std::ranges::max_element(times) - times.begin()];
  add_best_cut(measured, most, clock);
  if (slowest_replica != most) add_best_cut(measured, slowest_replica, clock);
}

Replanned Replanner::plan_for(const MeasuredStep& measured, const std::function<double()>& clock) {
  take(measured);
  const Plan& now = measured.plan;
  Replanned best = with_shares(measured, now, replica_times(measured, now));
  if (rules_.layers.empty() || now.stages() == 1) return best;
  const double before_s = best.before_s;
  search(measured, clock);
  const auto consider = [&](const Partition& partition, const std::vector<bool>& recompute, double must_be_below) {
    const Plan plan = with_cut(now, partition, recompute);
    const Replanned other = with_shares(measured, plan, replica_times(measured, plan));
    if (other.after_s < must_be_below) best = other;
  };
  for (const Cut& cut : cuts_) consider(cut.partition, cut.recompute, best.after_s);
  if (rules_.first && rules_.first->stages() == now.stages())
    consider(rules_.first->partition, rules_.first->recompute, best.after_s * (1 + kClearly));
  best.before_s = before_s;
  return best;
}

Replanned Replanner::trial_plan(const MeasuredStep& measured) {
  take(measured);
  const std::vector<double> times = replica_times(measured, measured.plan);
  Replanned trial{.plan = measured.plan};
  std::vector<std::int64_t> units = Parts(std::ssize(times), measured.plan.shares).sizes(measured.units);
  trial.before_s = slowest_of(times, units);
  for (std::int64_t& own : units) {
    if (own > 0) continue;
    own = 1;
    --*std::ranges::max_element(units);
  }
  trial.after_s = slowest_of(times, units);
  trial.plan.shares.assign(units.begin(), units.end());
  return trial;
}

}  // namespace sluice::tune
