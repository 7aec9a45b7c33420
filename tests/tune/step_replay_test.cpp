// replay_step() beside the simulator of schedules, on steps that it has timed itself: replaying its spans with edited
// times gives what it says of the edited costs. And steps made by hand, with closed forms.
#include "tune/step_replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <string>

#include "core/error.h"
#include "core/rng.h"
#include "pipeline/schedule/generators.h"
#include "tune/recorded_steps.h"

namespace sluice::tune {
namespace {

using pipeline::Schedule;
using pipeline::Simulation;
using pipeline::StepCost;
using test::edit_of;
using test::replay_one;
using test::span_of;
using testing::HasSubstr;

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : random_(seed) {}
  int between(int low, int high) { return low + static_cast<int>(random_.below(high - low + 1)); }
  bool coin() { return random_.below(2) == 1; }

 private:
  RngStream random_;
};

double sum_of_path(const StepReplay& replay) {
  return std::accumulate(replay.path.begin(), replay.path.end(), 0.0,
                         [](double sum, const EventGraph::Part& part) { return sum + part.time; });
}

Schedule random_schedule(const std::string& name, Dice& dice) {
  const int p = dice.between(1, 4), m = dice.between(name == "dualpipe-v" ? 2 * p : 1, 2 * p + 4);
  const bool is_looped = name == "interleaved" || name == "looped-bfs";
  pipeline::PipelineShape shape{.stages = p, .micro_batches = m, .virtual_stages = {}};
  if (is_looped) shape.virtual_stages = dice.between(1, 3);
  Schedule schedule = pipeline::with_reductions(pipeline::make_schedule(name, shape));
  for (auto& actions : schedule.devices)  // the executor runs the parts of a pair one after the other
    for (pipeline::Action& action : actions) action.overlaps_next = false;
  return schedule;
}

// stage: -1: of any.
bool has_op(const Schedule& schedule, pipeline::Op op, int stage = -1) {
  const auto is_it = [&](const pipeline::Action& action) {
    return action.op == op && (stage < 0 || index(action.stage) == stage);
  };
  return std::ranges::any_of(schedule.devices,
                             [&](const auto& actions) { return std::ranges::any_of(actions, is_it); });
}

// Whole nanoseconds.
pipeline::Costs random_costs(const Schedule& schedule, Dice& dice) {
  pipeline::Costs costs;
  const auto time = [&] { return 6000.0 * dice.between(0, 9); };
  for (int stage = 0; stage < schedule.stages; ++stage)
    costs.stages.push_back({.forward = time() + 6, .input = time(), .weight = time(), .backward = time() + time()});
  return costs;
}

// A random edit, and what it makes of the costs; none where there is no such work.
void edit_both(StepEdits& edits, pipeline::Costs& costs, Dice& dice, const Schedule& schedule) {
  constexpr std::array kFactors{0.5, 1.0 / 3, 2.0, 1.5, 0.0};
  const double factor = kFactors[dice.between(0, 4)];
  const double more = 1000.0 * (dice.coin() ? 0 : dice.between(-20, 20));
  const auto kind = std::array{WorkKind::kForward, WorkKind::kBackward, WorkKind::kWeightGradient}[dice.between(0, 2)];
  const int stage = dice.coin() ? -1 : dice.between(0, schedule.stages - 1);
  if (kind == WorkKind::kWeightGradient && !has_op(schedule, pipeline::Op::kWeightGradient, stage)) return;
  for (int s = 0; s < static_cast<int>(costs.stages.size()); ++s) {
    if (stage >= 0 && s != stage) continue;
    StepCost& cost = costs.stages[s];
    const auto change = [&](double& time) { time = std::max(0.0, time * factor + more); };
    if (kind == WorkKind::kForward) change(cost.forward);
    if (kind == WorkKind::kWeightGradient) change(cost.weight);
    if (kind != WorkKind::kBackward) continue;
    change(cost.input);
    change(*cost.backward);
  }
  WorkSelector of{.kind = kind};
  if (stage >= 0) of.stage = stage;
  edits.work.push_back(edit_of(of, factor, more));
}

class EverySchedule : public testing::TestWithParam<std::string> {};

TEST_P(EverySchedule, UneditedIsWhatWasRecorded) {
  Dice dice(3);
  for (int round = 0; round < 60; ++round) {
    const Schedule schedule = random_schedule(GetParam(), dice);
    const pipeline::Costs costs = random_costs(schedule, dice);
    const StepSpans recorded =
        test::recorded_step(schedule, simulate(schedule, costs), {.before = 17, .optimizer = 900, .after = 5});
    const StepReplay replay = replay_one(recorded);
    EXPECT_EQ(replay.step, recorded.end - recorded.begin);
    EXPECT_NEAR(sum_of_path(replay), static_cast<double>(replay.step), 1e-3);
    for (std::size_t p = 0; p < recorded.slots.size(); ++p) {
      for (std::size_t s = 0; s < recorded.slots[p].spans.size(); ++s) {
        EXPECT_EQ(replay.processes[0].slots[p].spans[s].begin, recorded.slots[p].spans[s].begin);
        EXPECT_EQ(replay.processes[0].slots[p].spans[s].end, recorded.slots[p].spans[s].end);
      }
    }
  }
}

TEST_P(EverySchedule, EditedIsWhatTheSimulatorSaysOfEditedCosts) {
  Dice dice(11);
  int longer = 0, shorter = 0;
  for (int round = 0; round < 150; ++round) {
    const Schedule schedule = random_schedule(GetParam(), dice);
    pipeline::Costs costs = random_costs(schedule, dice);
    const Simulation before = simulate(schedule, costs);
    const StepSpans recorded = test::recorded_step(schedule, before, {.before = 40, .optimizer = 100, .after = 7});
    StepEdits edits;
    for (int i = dice.between(1, 3); i > 0; --i) edit_both(edits, costs, dice, schedule);
    const Simulation after = simulate(schedule, costs);
    longer += after.makespan > before.makespan ? 1 : 0;
    shorter += after.makespan < before.makespan ? 1 : 0;
    const StepReplay replay = replay_one(recorded, edits);
    EXPECT_NEAR(static_cast<double>(replay.step - recorded.end), after.makespan - before.makespan, 3)
        << GetParam() << " round " << round;
  }
  EXPECT_GT(longer, 10);
  EXPECT_GT(shorter, 10);
}

INSTANTIATE_TEST_SUITE_P(Schedules, EverySchedule,
                         testing::ValuesIn(pipeline::schedule_names().begin(), pipeline::schedule_names().end()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

// One device: load 10, a gap of 5, forward 20 with its loss in it, a gap of 1, backward 30, a gap of 2, REDUCE_GRAD,
// then the norm (4) and the optimizer (8) after 3 each, and 6 to the end.
StepSpans one_device() {
  StepSpans step{.step = 9, .begin = 100};
  step.process = {span_of(Phase::kLoadWait, 100, 110)};
  step.slots = {test::slot_of(0, 0, {0},
                              {span_of(Phase::kHostToDevice, 115, 116, 0, 0), span_of(Phase::kLoss, 130, 136, 0, 0),
                               span_of(Phase::kForward, 116, 136, 0, 0), span_of(Phase::kAllReduce, 150, 152, 0),
                               span_of(Phase::kBackward, 137, 167, 0, 0), span_of(Phase::kAllReduce, 169, 169, 0),
                               span_of(Phase::kOptimizer, 172, 176, 0), span_of(Phase::kOptimizer, 179, 187, 0)})};
  step.end = 193;
  return step;
}

TEST(StepReplay, WorkIsScaledAndWhatLiesBetweenIsKept) {
  const auto length = [](const WorkEdit& edit) { return replay_one(one_device(), {.work = {edit}}).step; };
  EXPECT_EQ(replay_one(one_device()).step, 93);
  EXPECT_EQ(length(edit_of({.kind = WorkKind::kLoad}, 3)), 93 + 20);
  EXPECT_EQ(length(edit_of({.kind = WorkKind::kForward}, 0.5)), 93 - 10);  // the loss is of it
  EXPECT_EQ(length(edit_of({.kind = WorkKind::kBackward}, 2)), 93 + 28);   // not what it adds up
  EXPECT_EQ(length(edit_of({.kind = WorkKind::kAllReduce}, 0)), 93 - 2);
  EXPECT_EQ(length(edit_of({.kind = WorkKind::kTransfer}, 11)), 93 + 10);
  EXPECT_EQ(length(edit_of({.kind = WorkKind::kOptimizer}, 0)), 93 - 12);
  EXPECT_EQ(length(edit_of({}, 2)), 93 + 20 + 28 + 12);  // all computing
  EXPECT_EQ(length(edit_of({.stage = 0}, 2)), 93 + 20 + 28 + 12);
  EXPECT_EQ(length(edit_of({.device = "cpu:0"}, 2)), 93 + 20 + 28 + 12);
  EXPECT_EQ(length(edit_of({.kind = WorkKind::kForward, .rank = 0, .replica = 0, .stage = 0}, 0)), 93 - 20);
}

// On queues of their own: a copy, and a sum that ends after the backward.
TEST(StepReplay, WhatGoesOnBesideTakesNoTimeOfItsSlot) {
  StepSpans step = one_device();
  for (Span span : {span_of(Phase::kReceive, 120, 130, 0, 1), span_of(Phase::kAllReduce, 160, 168, 0)}) {
    span.is_beside = true;
    step.slots[0].spans.push_back(span);
  }
  const auto length = [&](const WorkEdit& edit) { return replay_one(step, {.work = {edit}}).step; };
  EXPECT_EQ(replay_one(step).step, 93);
  EXPECT_EQ(length(edit_of({.kind = WorkKind::kForward}, 0.5)), 93 - 10);
  EXPECT_EQ(length(edit_of({.kind = WorkKind::kBackward}, 2)), 93 + 28);
  EXPECT_EQ(length(edit_of({.kind = WorkKind::kTransfer}, 11)), 93 + 10);
  EXPECT_EQ(length(edit_of({.kind = WorkKind::kAllReduce}, 0)), 93 - 2);
}

// Once to each action, whatever runs within it.
TEST(StepReplay, MoreIsAddedToEachPiece) {
  const auto length = [](const WorkEdit& edit) { return replay_one(one_device(), {.work = {edit}}).step; };
  EXPECT_EQ(length(edit_of({.kind = WorkKind::kForward}, 1, 7)), 93 + 7);
  EXPECT_EQ(length(edit_of({.kind = WorkKind::kBackward}, 1, 7)), 93 + 7);
  EXPECT_EQ(length(edit_of({.kind = WorkKind::kOptimizer}, 1, 7)), 93 + 14);
  EXPECT_EQ(length(edit_of({.kind = WorkKind::kLoad}, 1, -100)), 93 - 10);  // never below 0
}

TEST(StepReplay, ThePathOfOneDeviceIsTheStep) {
  std::map<std::optional<WorkKind>, double> path;
  for (const auto& [label, time] : replay_one(one_device()).path) path[label.kind] += time;
  const std::map<std::optional<WorkKind>, double> expected{{std::nullopt, 5 + 1 + 2 + 3 + 3 + 6},
                                                           {WorkKind::kLoad, 10},
                                                           {WorkKind::kForward, 20},
                                                           {WorkKind::kBackward, 28},
                                                           {WorkKind::kAllReduce, 2},
                                                           {WorkKind::kTransfer, 1},
                                                           {WorkKind::kOptimizer, 12}};
  EXPECT_EQ(path, expected);
}

// Forward 10 on each of two stages; the second wakes up 3 late for its activation, the first one 2 for its gradient.
StepSpans two_stages() {
  StepSpans step{.step = 1};
  step.slots = {test::slot_of(0, 0, {0},
                              {span_of(Phase::kForward, 0, 10, 0, 0), span_of(Phase::kSend, 10, 10, 0, 0),
                               span_of(Phase::kReceiveWait, 11, 45, 0, 0), span_of(Phase::kBackward, 45, 65, 0, 0),
                               span_of(Phase::kAllReduce, 65, 65, 0), span_of(Phase::kOptimizer, 70, 75, 0)}),
                test::slot_of(0, 1, {1},
                              {span_of(Phase::kReceiveWait, 1, 13, 1, 0), span_of(Phase::kForward, 13, 23, 1, 0),
                               span_of(Phase::kBackward, 23, 43, 1, 0), span_of(Phase::kSend, 43, 43, 1, 0),
                               span_of(Phase::kAllReduce, 43, 43, 1), span_of(Phase::kOptimizer, 70, 71, 1)})};
  step.end = 77;
  return step;
}

TEST(StepReplay, AWaitEndsWhenTheMessageIsThereAndTheThreadAwake) {
  const StepReplay unedited = replay_one(two_stages());
  EXPECT_EQ(unedited.step, 77);
  EXPECT_EQ(unedited.waited, 34 + 12);
  EXPECT_EQ(unedited.waited_after_sending, 2 + 3);
  const auto edited = [](int stage, double factor) {
    return replay_one(two_stages(), {.work = {edit_of({.kind = WorkKind::kForward, .stage = stage}, factor)}});
  };
  EXPECT_EQ(edited(0, 2).step, 77 + 10);
  EXPECT_EQ(edited(1, 0.5).step, 77 - 5);
  const StepReplay replay = edited(0, 2);
  const auto& second = replay.processes[0].slots[1].spans;
  EXPECT_EQ(second[0].begin, 1);
  EXPECT_EQ(second[0].end, 23);
  EXPECT_EQ(second[1].end, 33);
  // All rounds after the pass begin when the slowest thread is done.
  EXPECT_EQ(second[5].begin, 80);
}

// Nobody waits before work that has no neighbour: an optimizer that is slower in one slot alone delays the end.
TEST(StepReplay, RoundsEndWithTheSlowestSlot) {
  const auto length = [](int stage, double factor) {
    return replay_one(two_stages(), {.work = {edit_of({.kind = WorkKind::kOptimizer, .stage = stage}, factor)}}).step;
  };
  EXPECT_EQ(length(1, 5), 77);
  EXPECT_EQ(length(1, 7), 77 + 2);
  EXPECT_EQ(length(0, 0), 77 - 4);
}

// A norm of 10 and 4, then an optimizer of 3 and 6: who was slow in the first round keeps the other from the second.
TEST(StepReplay, EachRoundWaitsForAllSlotsOfTheOneBefore) {
  StepSpans step{.step = 1, .end = 26};
  const auto slot = [](int replica, Nanoseconds norm, Nanoseconds optimizer) {
    return test::slot_of(replica, 0, {0},
                         {span_of(Phase::kForward, 0, 10, 0, 0), span_of(Phase::kOptimizer, 10, 10 + norm, 0),
                          span_of(Phase::kOptimizer, 20, 20 + optimizer, 0)});
  };
  step.slots = {slot(0, 10, 3), slot(1, 4, 6)};
  const auto length = [&](int replica, double factor) {
    return replay_one(step, {.work = {edit_of({.kind = WorkKind::kOptimizer, .replica = replica}, factor)}}).step;
  };
  EXPECT_EQ(replay_one(step).step, 26);
  EXPECT_EQ(length(0, 2), 10 + 20 + 6);
  EXPECT_EQ(length(1, 2), 10 + 10 + 12);
  EXPECT_EQ(length(0, 0), 10 + 4 + 6);
}

// Two devices run the frozen layers of half the samples each; the first stage waits for both halves.
TEST(StepReplay, FeaturesOfFrozenLayersComeFromAllDevices) {
  StepSpans step{.step = 1, .end = 60};
  step.slots = {test::slot_of(0, 0, {0},
                              {span_of(Phase::kForward, 0, 10, -1, 0), span_of(Phase::kSend, 10, 10, -1, 0),
                               span_of(Phase::kReceiveWait, 10, 10, 0, 0), span_of(Phase::kReceiveWait, 10, 20, 0, 0),
                               span_of(Phase::kForward, 20, 30, 0, 0), span_of(Phase::kSend, 30, 30, 0, 0),
                               span_of(Phase::kReceiveWait, 30, 50, 0, 0), span_of(Phase::kBackward, 50, 60, 0, 0)}),
                test::slot_of(0, 1, {1},
                              {span_of(Phase::kForward, 0, 20, -1, 0), span_of(Phase::kSend, 20, 20, -1, 0),
                               span_of(Phase::kReceiveWait, 20, 30, 1, 0), span_of(Phase::kForward, 30, 40, 1, 0),
                               span_of(Phase::kBackward, 40, 50, 1, 0), span_of(Phase::kSend, 50, 50, 1, 0)})};
  const auto length = [&](const std::string& device, double factor) {
    return replay_one(step, {.work = {edit_of({.kind = WorkKind::kForward, .stage = -1, .device = device}, factor)}})
        .step;
  };
  EXPECT_EQ(replay_one(step).step, 60);
  EXPECT_EQ(length("cpu:1", 2), 80);
  EXPECT_EQ(length("cpu:0", 2), 60);
  EXPECT_EQ(length("cpu:0", 3), 70);
  EXPECT_EQ(length("cpu:1", 0), 50);
}

std::string refusal(const StepSpans& step, const StepEdits& edits = {}) {
  try {
    (void)replay_one(step, edits);
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

TEST(StepReplay, RefusesWhatIsNoWholeStepOrNoWorkOfIt) {
  EXPECT_EQ(refusal(two_stages()), "none");
  EXPECT_THAT(refusal(StepSpans{.step = 4}), HasSubstr("step 4 of the trace has no forward pass"));
  StepSpans dropped = two_stages();
  dropped.dropped = 3;
  EXPECT_THAT(refusal(dropped), HasSubstr("is incomplete, because the recorder ran out of room"));
  StepSpans turns = two_stages();
  turns.turns = {{.worker = 0, .begin = 0, .end = 5}};
  EXPECT_THAT(refusal(turns), HasSubstr("virtual workers"));
  StepSpans unsent = two_stages();
  std::erase_if(unsent.slots[0].spans, [](const Span& span) { return span.phase == Phase::kSend; });
  EXPECT_THAT(refusal(unsent), HasSubstr("stage 1 waits for micro-batch 0, which no stage has sent"));
  StepSpans ring = two_stages();
  std::swap(ring.slots[0].spans[0], ring.slots[0].spans[2]);
  ring.slots[0].spans[0] = span_of(Phase::kReceiveWait, -3, -2, 0, 0);  // the gradient before the activation is sent
  EXPECT_THAT(refusal(ring), HasSubstr("wait for each other in a cycle"));
  EXPECT_THAT(refusal(two_stages(), {.work = {edit_of({.stage = 2}, 2)}}), HasSubstr("has no such work"));
  EXPECT_THAT(refusal(two_stages(), {.work = {edit_of({.kind = WorkKind::kWeightGradient}, 2)}}),
              HasSubstr("has no such work"));
  EXPECT_THAT(refusal(two_stages(), {.network = StepEdits::Network{.bytes_per_s = 1}}),
              HasSubstr("no all-reduce over processes"));
}

}  // namespace
}  // namespace sluice::tune
