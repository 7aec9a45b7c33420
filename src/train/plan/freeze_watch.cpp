#include "train/plan/freeze_watch.h"

#include <algorithm>

#include "core/check.h"
#include "freeze/unit_norms.h"

namespace sluice::train {

FreezeWatch::FreezeWatch(const Peers& peers, const Setup& setup, engine::Engine& engine, RunPlans& plans,
                         const Progress& start)
    : peers_(peers),
      setup_(setup),
      engine_(engine),
      plans_(plans),
      start_(start),
      policy_(policy_of(setup)),
      planner_(setup, start.position.epoch) {
  if (start_.position.batch > 0) plans_.norms.clear();
  const auto last = std::ranges::find_if(plans_.changes.rbegin(), plans_.changes.rend(),
                                         [](const PlanChange& change) { return change.freeze && !change.is_refused; });
  planner_.follow(engine_.plan(),
                  last == plans_.changes.rend() ? std::nullopt : std::optional(last->freeze->predicted_s));
  if (peers_.keeps_records()) planner_.prepare();  // now, so that no step waits for it
}

PlanSource FreezeWatch::source() {
  PlanSource source = source_of(plans_.changes);
  source.next = [this](std::int64_t steps_done) { return next(steps_done); };
  source.refused = [this, mark = source.refused](std::int64_t steps_done) {
    mark(steps_done);
    planner_.follow(engine_.plan(), plans_.changes.back().freeze->predicted_before_s);
  };
  source.freeze_record = [this](std::int64_t steps_done) {
    return steps_done == decided_at_ ? record_ : nlohmann::ordered_json();
  };
  return source;
}

std::optional<Plan> FreezeWatch::next(std::int64_t steps_done) {
  const std::int64_t batches = start_.position.batch + steps_done - start_.steps_done;
  if (steps_done == start_.steps_done || batches % setup_.batches_per_epoch != 0) return std::nullopt;
  std::optional<PlanChange> change;
  RunState state;
  if (peers_.keeps_records()) {
    change = decide(steps_done, start_.position.epoch + batches / setup_.batches_per_epoch);
    if (change) state.changes.push_back(*change);
    state.norms = plans_.norms;
  } else {
    (void)engine_.take_gradient_norms();
  }
  if (!peers_.is_alone()) {
    const std::string text = comm::broadcast_text(peers_.communicator(), state.to_json().dump(), /*root=*/0);
    const RunState received = RunState::from_json(nlohmann::json::parse(text), "rank 0's decision");
    if (!received.changes.empty()) change = received.changes.front();
    plans_.norms = received.norms;
  }
  if (!change) return std::nullopt;
  plans_.changes.push_back(*change);
  return change->plan;
}

std::optional<PlanChange> FreezeWatch::decide(std::int64_t steps_done, std::int64_t epoch) {
  const std::vector<int>& points = planner_.points();
  const auto found = std::ranges::find(points, engine_.plan().frozen_layers);
  check(found != points.end(), "the frozen layers make a whole number of units");
  const int frozen = static_cast<int>(found - points.begin());
  std::vector<double> norms = freeze::norms_of_units(engine_.take_gradient_norms(), points);
  const bool has_seen_all = epoch > start_.position.epoch + 1 || start_.position.batch == 0;
  if (!has_seen_all) norms.clear();
  const freeze::Decision decision = freeze::decide(
      policy_,
      {.epoch = epoch, .units = planner_.units(), .frozen = frozen, .norms = norms, .norms_before = plans_.norms});
  plans_.norms = std::move(norms);
  decided_at_ = steps_done;
  if (decision.frozen == frozen) {
    record_ = freeze_fields(steps_done, {.plan = engine_.plan(),
                                         .freeze = FreezeRecord{.epoch = epoch,
                                                                .units = frozen,
                                                                .units_before = frozen,
                                                                .of_units = planner_.units(),
                                                                .terms = decision.terms}});
    return std::nullopt;
  }
  PlanChange change = planner_.change({steps_done, epoch, epochs_of(setup_)}, frozen, decision);
  record_ = freeze_fields(steps_done, change);
  return change;
}

}  // namespace sluice::train
