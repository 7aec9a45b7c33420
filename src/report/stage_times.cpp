#include "report/stage_times.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "pipeline/schedule/plan_schedule.h"
#include "tune/predict.h"

namespace sluice::report {

StageTimes::Sums& StageTimes::sums_of(StageId stage) {
  const auto at = static_cast<std::size_t>(index(stage));
  if (stages_.size() <= at) stages_.resize(at + 1);
  return stages_[at];
}

// The loss is part of its forward. Sums that lie within an action are none of its work: they are exposed all-reduce.
// They come before it, since they end first.
void StageTimes::add_place(const std::vector<Span>& spans) {
  static constexpr std::array<std::pair<Phase, double Sums::*>, 3> kActions{{{Phase::kForward, &Sums::forward},
                                                                             {Phase::kBackward, &Sums::backward},
                                                                             {Phase::kWeightGradient, &Sums::weight}}};
  std::vector<const Span*> sums;
  for (const Span& span : spans) {
    if (span.phase == Phase::kAllReduce) sums.push_back(&span);
    const auto kind = std::ranges::find(kActions, span.phase, &std::pair<Phase, double Sums::*>::first);
    if (kind == kActions.end() || index(span.stage) < 0) continue;
    double seconds = to_s(span.end - span.begin);
    for (const Span* const sum : sums)
      if (sum->begin >= span.begin && sum->end <= span.end) seconds -= to_s(sum->end - sum->begin);
    sums.clear();
    sums_of(span.stage).*kind->second += seconds;
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

std::optional<double> StageTimes::step_s(const Plan& plan, const PlaceTotals& places) const {
  if (replica_steps_ == 0 || std::ssize(stages_) != plan.stages() || plan.frozen_layers > 0 || places.empty())
    return std::nullopt;
  const double count = static_cast<double>(replica_steps_) * plan.chunks;
  tune::StepCosts costs;
  for (const Sums& stage : stages_)
    costs.stages.push_back({.forward = stage.forward / count,
                            .input = stage.backward / count,
                            .weight = stage.weight / count,
                            .backward = (stage.backward + stage.weight) / count});
  double seconds = tune::predict_step(pipeline::make_train_schedule(plan, plan.chunks), costs).seconds;
  for (const PlaceTotal& place : places) {
    const Nanoseconds others = place.sum.all_reduce_exposed() + place.sum.optimizer() + place.sum.load();
    seconds += to_s(others) / static_cast<double>(place.steps) / static_cast<double>(places.size());
  }
  return seconds;
}

}  // namespace sluice::report
