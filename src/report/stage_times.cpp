#include "report/stage_times.h"

#include <set>

#include "pipeline/schedule/plan_schedule.h"
#include "tune/predict.h"

namespace sluice::report {
namespace {

using pipeline::Op;

// Of one action of a stage, a micro-batch.
struct ActionMeans {
  double usual = 0;
  double first_more = 0;  // that the first of a step takes
};

// seconds: of the actions of one kind. has_first: the first of them is the first of its step, which is told apart where
// it is longer than the others.
ActionMeans means_of(const std::vector<double>& seconds, bool has_first) {
  if (seconds.empty()) return {};
  double all = 0;
  for (const double one : seconds) all += one;
  const auto count = static_cast<double>(seconds.size());
  const double mean = all / count, first = seconds.front();
  if (!has_first || seconds.size() == 1 || first <= mean) return {mean, 0};
  const double others = (all - first) / (count - 1);
  return {others, first - others};
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

// The loss is part of its forward. Sums that lie within an action are none of its work: they are exposed all-reduce.
// They come before it, since they end first.
void StageTimes::add_place(const std::vector<Span>& spans) {
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
  for (const StepSpans::Place& place : spans.places) {
    if (place.stages.empty()) continue;
    replicas.insert(place.replica);
    add_place(place.spans);
  }
  replica_steps_ += std::ssize(replicas);
}

pipeline::StepCost StageTimes::mean_cost(const pipeline::Schedule& schedule, StageId stage) const {
  const Sums& sums = stages_[static_cast<std::size_t>(index(stage))];
  const auto steps = static_cast<double>(replica_steps_);
  const auto of = [&](const OfMicroBatches& all, MicroBatchId one) {
    const auto found = all.find(one);
    return found == all.end() ? 0 : found->second / steps;
  };
  std::vector<double> forward, input, whole;
  bool begins_whole = false;
  for (const auto& actions : schedule.devices) {
    for (const pipeline::Action& action : actions) {
      if (action.stage != stage) continue;
      if (action.op == Op::kForward) forward.push_back(of(sums.forward, action.micro_batch));
      if (action.op == Op::kBackward && input.empty()) begins_whole = true;
      if (action.op == Op::kBackward) whole.push_back(of(sums.backward, action.micro_batch));
      if (action.op == Op::kInputGradient) input.push_back(of(sums.backward, action.micro_batch));
    }
  }
  const ActionMeans of_forward = means_of(forward, true), of_input = means_of(input, !begins_whole),
                    of_whole = means_of(whole, begins_whole);
  pipeline::StepCost cost{.forward = of_forward.usual,
                          .input = of_input.usual,
                          .weight = input.empty() ? 0 : sums.weight / steps / static_cast<double>(input.size()),
                          .first_forward = of_forward.first_more,
                          .first_backward = begins_whole ? of_whole.first_more : of_input.first_more};
  if (!whole.empty()) cost.backward = of_whole.usual;
  return cost;
}

std::optional<double> StageTimes::step_s(const Plan& plan, const PlaceTotals& places) const {
  if (replica_steps_ == 0 || std::ssize(stages_) != plan.stages() || plan.frozen_layers > 0 || places.empty())
    return std::nullopt;
  const pipeline::Schedule schedule = pipeline::make_train_schedule(plan, plan.chunks);
  tune::StepCosts costs;
  for (int stage = 0; stage < plan.stages(); ++stage) costs.stages.push_back(mean_cost(schedule, StageId{stage}));
  double seconds = tune::predict_step(schedule, costs).seconds;
  for (const PlaceTotal& place : places) {
    const Nanoseconds others = place.sum.all_reduce_exposed() + place.sum.optimizer() + place.sum.load();
    seconds += to_s(others) / static_cast<double>(place.steps) / static_cast<double>(places.size());
  }
  return seconds;
}

}  // namespace sluice::report
