#include "report/stage_times.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "pipeline/schedule/plan_schedule.h"
#include "tune/predict.h"

namespace sluice::report {
namespace {

using pipeline::Op;

struct ActionMeans {
  double usual = 0;
  double first_more = 0;  // additional time of a step's first action
};

// has_first: the first one starts its step; it is kept apart if it is longer than the others.
ActionMeans action_means(const std::vector<double>& seconds, bool has_first) {
  if (seconds.empty()) return {};
  double all = 0;
  for (const double one : seconds) all += one;
  const auto count = static_cast<double>(seconds.size());
  const double mean = all / count, first = seconds.front();
  if (!has_first || seconds.size() == 1 || first <= mean) return {mean, 0};
  const double others = (all - first) / (count - 1);
  return {others, first - others};
}

std::vector<pipeline::Action> actions_of(const pipeline::Schedule& schedule, StageId stage) {
  std::vector<pipeline::Action> own;
  for (const auto& actions : schedule.devices)
    std::ranges::copy_if(actions, std::back_inserter(own), [&](const auto& action) { return action.stage == stage; });
  return own;
}

}  // namespace

StageTimes::Sums& StageTimes::sums_of(StageId stage) {
  const auto at = static_cast<std::size_t>(index(stage));
  if (stages_.size() <= at) stages_.resize(at + 1);
  return stages_[at];
}

double* StageTimes::sum_of(const Span& span) {
  if (index(span.stage) < 0) return nullptr;
  if (span.phase == Phase::kForward) return &sums_of(span.stage).forward[span.micro_batch];
  if (span.phase == Phase::kBackward) return &sums_of(span.stage).backward[span.micro_batch];
  if (span.phase == Phase::kWeightGradient) return &sums_of(span.stage).weight;
  return nullptr;
}

// Counts the loss as part of the forward. Subtracts all-reduces within an action, which are exposed all-reduce time;
// their spans come first, because they end first.
void StageTimes::add_slot(const std::vector<Span>& spans) {
  std::vector<const Span*> reductions;
  for (const Span& span : spans) {
    if (span.phase == Phase::kAllReduce) reductions.push_back(&span);
    double* const sum = sum_of(span);
    if (sum == nullptr) continue;
    double seconds = to_s(span.end - span.begin);
    for (const Span* const reduction : reductions)
      if (reduction->begin >= span.begin && reduction->end <= span.end)
        seconds -= to_s(reduction->end - reduction->begin);
    reductions.clear();
    *sum += seconds;
  }
}

void StageTimes::add(const StepSpans& spans) {
  if (spans.dropped > 0) return;
  std::set<ReplicaId> replicas;
  for (const StepSpans::Slot& slot : spans.slots) {
    if (slot.stages.empty()) continue;
    replicas.insert(slot.replica);
    add_slot(slot.spans);
  }
  replica_steps_ += std::ssize(replicas);
}

pipeline::StepCost StageTimes::mean_cost(const pipeline::Schedule& schedule, StageId stage) const {
  const Sums& sums = stages_[static_cast<std::size_t>(index(stage))];
  const auto steps = static_cast<double>(replica_steps_);
  const std::vector<pipeline::Action> actions = actions_of(schedule, stage);
  const auto seconds_of = [&](Op op, const OfMicroBatches& all) {
    std::vector<double> seconds;
    for (const pipeline::Action& action : actions) {
      if (action.op != op) continue;
      const auto found = all.find(action.micro_batch);
      seconds.push_back(found == all.end() ? 0 : found->second / steps);
    }
    return seconds;
  };
  const auto first = std::ranges::find_if(
      actions, [](const auto& action) { return action.op == Op::kBackward || action.op == Op::kInputGradient; });
  const bool begins_whole = first != actions.end() && first->op == Op::kBackward;
  const std::vector<double> inputs = seconds_of(Op::kInputGradient, sums.backward),
                            wholes = seconds_of(Op::kBackward, sums.backward);
  const ActionMeans forward = action_means(seconds_of(Op::kForward, sums.forward), true),
                    input = action_means(inputs, !begins_whole), whole = action_means(wholes, begins_whole);
  pipeline::StepCost cost{.forward = forward.usual,
                          .input = input.usual,
                          .weight = inputs.empty() ? 0 : sums.weight / steps / static_cast<double>(inputs.size()),
                          .first_forward = forward.first_more,
                          .first_backward = begins_whole ? whole.first_more : input.first_more};
  if (!wholes.empty()) cost.backward = whole.usual;
  return cost;
}

std::optional<double> StageTimes::step_s(const Plan& plan, const SlotTotals& slots) const {
  if (replica_steps_ == 0 || std::ssize(stages_) != plan.stages() || plan.frozen_layers > 0 || slots.empty())
    return std::nullopt;
  const pipeline::Schedule schedule = pipeline::make_train_schedule(plan, plan.chunks);
  tune::StepCosts costs;
  for (int stage = 0; stage < plan.stages(); ++stage) costs.stages.push_back(mean_cost(schedule, StageId{stage}));
  double seconds = tune::predict_step(schedule, costs).seconds;
  for (const SlotTotal& slot : slots) {
    const Nanoseconds others = slot.sum.all_reduce_exposed() + slot.sum.optimizer() + slot.sum.load();
    seconds += to_s(others) / static_cast<double>(slot.steps) / static_cast<double>(slots.size());
  }
  return seconds;
}

}  // namespace sluice::report
