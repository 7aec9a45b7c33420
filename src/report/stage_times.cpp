#include "report/stage_times.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "pipeline/schedule/plan_schedule.h"
#include "tune/predict.h"

namespace sluice::report {
namespace {

// Of one action of a stage, a micro-batch.
struct ActionMeans {
  double usual = 0;
  double first_more = 0;  // that the first of a step takes
};

// all: of a step. A first one that is no longer than the others is like them.
ActionMeans means_with_first(double all, double first, int chunks) {
  const double mean = all / chunks;
  if (first <= mean) return {mean, 0};
  const double others = (all - first) / std::max(1, chunks - 1);
  return chunks == 1 ? ActionMeans{mean, 0} : ActionMeans{others, first - others};
}

}  // namespace

StageTimes::Sums& StageTimes::sums_of(StageId stage) {
  const auto at = static_cast<std::size_t>(index(stage));
  if (stages_.size() <= at) stages_.resize(at + 1);
  return stages_[at];
}

// The loss is part of its forward. Sums that lie within an action are none of its work: they are exposed all-reduce.
// They come before it, since they end first.
void StageTimes::add_place(const std::vector<Span>& spans) {
  struct Action {
    Phase phase;
    double Sums::*all;
    double Sums::*first;  // null: the first is like the others
  };
  static constexpr std::array<Action, 3> kActions{{{Phase::kForward, &Sums::forward, &Sums::first_forward},
                                                   {Phase::kBackward, &Sums::backward, &Sums::first_backward},
                                                   {Phase::kWeightGradient, &Sums::weight, nullptr}}};
  std::set<std::pair<StageId, Phase>> begun;
  std::vector<const Span*> sums;
  for (const Span& span : spans) {
    if (span.phase == Phase::kAllReduce) sums.push_back(&span);
    const auto kind = std::ranges::find(kActions, span.phase, &Action::phase);
    if (kind == kActions.end() || index(span.stage) < 0) continue;
    double seconds = to_s(span.end - span.begin);
    for (const Span* const sum : sums)
      if (sum->begin >= span.begin && sum->end <= span.end) seconds -= to_s(sum->end - sum->begin);
    sums.clear();
    Sums& stage = sums_of(span.stage);
    stage.*kind->all += seconds;
    if (begun.emplace(span.stage, span.phase).second && kind->first != nullptr) stage.*kind->first += seconds;
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
  const auto steps = static_cast<double>(replica_steps_);
  tune::StepCosts costs;
  for (const Sums& stage : stages_) {
    const ActionMeans forward = means_with_first(stage.forward / steps, stage.first_forward / steps, plan.chunks);
    const ActionMeans backward = means_with_first(stage.backward / steps, stage.first_backward / steps, plan.chunks);
    const double weight = stage.weight / steps / plan.chunks;
    costs.stages.push_back({.forward = forward.usual,
                            .input = backward.usual,
                            .weight = weight,
                            .backward = backward.usual + weight,
                            .first_forward = forward.first_more,
                            .first_backward = backward.first_more});
  }
  double seconds = tune::predict_step(pipeline::make_train_schedule(plan, plan.chunks), costs).seconds;
  for (const PlaceTotal& place : places) {
    const Nanoseconds others = place.sum.all_reduce_exposed() + place.sum.optimizer() + place.sum.load();
    seconds += to_s(others) / static_cast<double>(place.steps) / static_cast<double>(places.size());
  }
  return seconds;
}

}  // namespace sluice::report
