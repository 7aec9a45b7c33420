#include "tune/replan.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/clock.h"
#include "core/parts.h"
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

std::vector<Nanoseconds> in_nanoseconds(const std::vector<double>& seconds) {
  std::vector<Nanoseconds> times;
  for (const double time : seconds) times.push_back(std::max<Nanoseconds>(from_s(time), 1));
  return times;
}

double slowest_of(const std::vector<double>& times, const std::vector<std::int64_t>& units) {
  return to_s(slowest(in_nanoseconds(times), units));
}

Plan with_cut(Plan plan, const Partition& partition, const std::vector<bool>& recompute) {
  plan.partition = partition;
  plan.recompute = recompute;
  return plan;
}

// The search needs factors of at least 1. Only their ratios matter for the best cut.
std::vector<double> in_proportion(std::vector<double> slowness) {
  const double least = std::ranges::min(slowness);
  for (double& own : slowness) own /= least;
  return slowness;
}

bool is_same_slowness(const std::vector<std::vector<double>>& a, const std::vector<std::vector<double>>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t replica = 0; replica < a.size(); ++replica) {
    if (a[replica].size() != b[replica].size()) return false;
    for (std::size_t device = 0; device < a[replica].size(); ++device)
      if (std::abs(std::log(a[replica][device] / b[replica][device])) > Replanner::kSameSlowness) return false;
  }
  return true;
}

}  // namespace

// [device]: predicted seconds of a step, for a replica with this number of samples.
std::vector<double> Replanner::computing(const Plan& plan, double replica_samples) const {
  std::vector<double> seconds;
  for (const DevicePrediction& device : predict_step(plan, rules_.layers, replica_samples).devices)
    seconds.push_back(device.compute);
  return seconds;
}

std::vector<double> Replanner::work_ratios(const Plan& now, const Plan& then, double replica_samples) const {
  if (rules_.layers.empty()) return std::vector<double>(then.devices(), 1);
  std::vector<double> ratios = computing(then, replica_samples);
  const std::vector<double> before = computing(now, replica_samples);
  for (std::size_t device = 0; device < ratios.size(); ++device)
    ratios[device] = before.at(device) > 0 ? ratios[device] / before[device] : 1;
  return ratios;
}

std::vector<std::vector<double>> Replanner::slowness() const {
  Slowness all = slowness_;
  double least = all.at(0).at(0);
  for (const auto& of_replica : all) least = std::min(least, std::ranges::min(of_replica));
  for (auto& of_replica : all)
    for (double& own : of_replica) own /= least;
  return all;
}

void Replanner::update_slowness(const MeasuredStep& measured) {
  const std::int64_t replicas = std::ssize(measured.computing);
  const bool has_costs = !rules_.layers.empty();
  const std::vector<double> planned =
      has_costs ? computing(measured.plan, mean_samples(measured)) : std::vector<double>(measured.plan.devices(), 1);
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

// [replica]: seconds of one unit. Without layer costs: of its slowest device.
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
  const std::vector<std::int64_t> shares = fastest_shares(in_nanoseconds(times), measured.units);
  const double after_s = slowest_of(times, shares);
  if (after_s >= result.before_s) return result;
  result.after_s = after_s;
  result.plan.shares.assign(shares.begin(), shares.end());
  return result;
}

void Replanner::add_best_cut(const MeasuredStep& measured, const std::vector<double>& slowness,
                             const std::function<double()>& clock) {
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

// The best cut for each replica that has a share, and one in which each device counts as its slowest one.
void Replanner::update_cuts(const MeasuredStep& measured, const std::function<double()>& clock) {
  const std::vector<std::int64_t> units = Parts(std::ssize(slowness_), measured.plan.shares).sizes(measured.units);
  Slowness wanted;
  std::vector<double> slowest_of_each(slowness_.front().size(), 0);
  for (std::size_t replica = 0; replica < slowness_.size(); ++replica) {
    if (units[replica] == 0) continue;
    wanted.push_back(slowness_[replica]);
    for (std::size_t device = 0; device < slowest_of_each.size(); ++device)
      slowest_of_each[device] = std::max(slowest_of_each[device], slowness_[replica][device]);
  }
  wanted.push_back(slowest_of_each);
  if (is_same_slowness(wanted, searched_)) return;
  searched_ = wanted;
  cuts_.clear();
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const auto is_alike = [&](const auto& other) {
      return is_same_slowness({in_proportion(other)}, {in_proportion(wanted[i])});
    };
    if (std::none_of(wanted.begin(), wanted.begin() + static_cast<std::ptrdiff_t>(i), is_alike))
      add_best_cut(measured, in_proportion(wanted[i]), clock);
  }
}

Replanner::Best Replanner::plans_for(const MeasuredStep& measured, const std::function<double()>& clock) {
  update_slowness(measured);
  const Plan& now = measured.plan;
  Best best{.with_this_cut = with_shares(measured, now, replica_times(measured, now))};
  best.with_any_cut = best.with_this_cut;
  if (rules_.layers.empty() || now.stages() == 1) return best;
  update_cuts(measured, clock);
  const auto consider = [&](const Partition& partition, const std::vector<bool>& recompute, double must_be_below) {
    const Plan plan = with_cut(now, partition, recompute);
    const Replanned other = with_shares(measured, plan, replica_times(measured, plan));
    if (other.after_s < must_be_below) best.with_any_cut = other;
  };
  for (const Cut& cut : cuts_) consider(cut.partition, cut.recompute, best.with_any_cut.after_s);
  if (rules_.preferred && rules_.preferred->stages() == now.stages())
    consider(rules_.preferred->partition, rules_.preferred->recompute, best.with_any_cut.after_s * (1 + kClearly));
  best.with_any_cut.before_s = best.with_this_cut.before_s;
  return best;
}

Replanned Replanner::trial_plan(const MeasuredStep& measured) const {
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
