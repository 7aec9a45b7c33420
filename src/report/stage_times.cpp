#include "report/stage_times.h"

#include <set>

#include "pipeline/schedule/plan_schedule.h"
#include "tune/predict.h"

namespace sluice::report {

StageTimes::Sums& StageTimes::sums_of(StageId stage) {
  const auto at = static_cast<std::size_t>(index(stage));
  if (stages_.size() <= at) stages_.resize(at + 1);
  return stages_[at];
}

double* StageTimes::sum_of(const Span& span) {
  if (index(span.stage) < 0) return nullptr;
  if (span.phase == Phase::kForward) return &sums_of(span.stage).forward;
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
  double input = 0, whole = 0;
  int inputs = 0, wholes = 0;
  for (const auto& actions : schedule.devices)
    for (const pipeline::Action& action : actions) {
      const bool is_whole = action.op == pipeline::Op::kBackward;
      if (action.stage != stage || (!is_whole && action.op != pipeline::Op::kInputGradient)) continue;
      const auto backward = sums.backward.find(action.micro_batch);
      (is_whole ? whole : input) += backward == sums.backward.end() ? 0 : backward->second;
      ++(is_whole ? wholes : inputs);
    }
  const auto mean = [this](double sum, int count) {
    return count > 0 ? sum / (static_cast<double>(replica_steps_) * count) : 0.0;
  };
  pipeline::StepCost cost{.forward = mean(sums.forward, schedule.micro_batches),
                          .input = mean(input, inputs),
                          .weight = mean(sums.weight, inputs)};
  if (wholes > 0) cost.backward = mean(whole, wholes);
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
