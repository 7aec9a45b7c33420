// What a run's own stages say of its steps, and how a prediction is told beside them.
#include "report/stage_times.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "pipeline/schedule/generators.h"
#include "pipeline/schedule/plan_schedule.h"
#include "pipeline/schedule/simulate.h"
#include "report/prediction.h"

namespace sluice::report {
namespace {

constexpr Nanoseconds kMillisecond = 1'000'000;

// Two stages of forward 10 and 20 ms, backward 20 and 40 ms a micro-batch, on a device each. more: of each stage's
// first forward and first backward.
StepSpans step_of(int chunks, Nanoseconds more = 0) {
  StepSpans spans;
  for (int stage = 0; stage < 2; ++stage) {
    StepSpans::Slot slot{.replica = ReplicaId{0}, .device = DeviceId{stage}, .stages = {StageId{stage}}, .spans = {}};
    Nanoseconds time = 0;
    for (int m = 0; m < chunks; ++m) {
      const Nanoseconds first = m == 0 ? more : 0, usual = (stage + 1) * 10 * kMillisecond, length = usual + first;
      // The loss lies within the forward, a sum within the backward; what ends first comes first.
      if (stage == 1)
        slot.spans.push_back(
            {Phase::kLoss, MicroBatchId{m}, time + length - kMillisecond, time + length, StageId{stage}});
      slot.spans.push_back({Phase::kForward, MicroBatchId{m}, time, time + length, StageId{stage}});
      time += length;
      slot.spans.push_back({Phase::kAllReduce, kNoMicroBatch, time + kMillisecond, time + 4 * kMillisecond, kNoStage});
      slot.spans.push_back(
          {Phase::kBackward, MicroBatchId{m}, time, time + 2 * usual + first + 3 * kMillisecond, StageId{stage}});
      time += 2 * usual + first + 3 * kMillisecond;
    }
    spans.slots.push_back(slot);
  }
  return spans;
}

SlotTotals totals_of(Nanoseconds sums, Nanoseconds update, std::int64_t steps) {
  SlotTotals totals(2);
  for (int device = 0; device < 2; ++device) {
    SlotTotal& total = totals[device];
    total.sum.replica = ReplicaId{0}, total.sum.device = DeviceId{device};
    total.sum[profiler::Part::kAllReduce] = steps * sums;
    total.sum[profiler::Part::kOptimizer] = steps * update;
    total.steps = steps;
  }
  return totals;
}

TEST(StageTimes, AreAStepInTheOrderOfTheSchedule) {
  StageTimes times;
  times.add(step_of(4));
  times.add(step_of(4));
  const Plan plan{.partition = {{1, 1}}, .chunks = 4, .schedule = "gpipe"};
  // Filled by the first stage, then the second one's forwards and backwards, then the first one's last backward.
  const double pipeline = 0.010 + 4 * (0.020 + 0.040) + 0.020;
  EXPECT_NEAR(times.step_s(plan, totals_of(12 * kMillisecond, 5 * kMillisecond, 2)).value(), pipeline + 0.012 + 0.005,
              1e-9);
}

TEST(StageTimes, TheFirstMicroBatchOfAStepIsNotLikeTheOthers) {
  StageTimes times;
  times.add(step_of(4, 6 * kMillisecond));
  const Plan plan{.partition = {{1, 1}}, .chunks = 4, .schedule = "gpipe"};
  // The first stage's first forward and the second one's first of both are on the way; the first stage's first backward
  // is hidden behind the second stage.
  const double pipeline = 0.016 + 4 * (0.020 + 0.040) + 0.006 + 0.006 + 0.020;
  EXPECT_NEAR(times.step_s(plan, totals_of(0, 0, 1)).value(), pipeline, 1e-9);
  StageTimes of_one;
  of_one.add(step_of(1, 6 * kMillisecond));
  const Plan one{.partition = {{1, 1}}, .chunks = 1, .schedule = "gpipe"};
  EXPECT_NEAR(of_one.step_s(one, totals_of(0, 0, 1)).value(), 0.090 + 4 * 0.006, 1e-9);
}

// The same step of two replicas, and what the process did itself.
TEST(StageTimes, AreMeansOfTheReplicas) {
  StepSpans spans = step_of(4);
  for (const StepSpans::Slot& slot : step_of(4).slots) {
    spans.slots.push_back(slot);
    spans.slots.back().replica = ReplicaId{1};
  }
  spans.slots.push_back({.replica = ReplicaId{-1}, .spans = {{Phase::kLoadWait, kNoMicroBatch, 0, 1, kNoStage}}});
  StageTimes times;
  times.add(spans);
  const Plan plan{.partition = {{1, 1}}, .replicas = 2, .chunks = 4, .schedule = "gpipe"};
  EXPECT_NEAR(times.step_s(plan, totals_of(0, 0, 1)).value(), 0.010 + 4 * (0.020 + 0.040) + 0.020, 1e-9);
}

TEST(StageTimes, AStepWaitsForItsBatch) {
  StageTimes times;
  times.add(step_of(4));
  const Plan plan{.partition = {{1, 1}}, .chunks = 4, .schedule = "gpipe"};
  SlotTotals totals = totals_of(0, 0, 1);
  const double without = times.step_s(plan, totals).value();
  for (SlotTotal& slot : totals) slot.sum[profiler::Part::kLoad] = 30 * kMillisecond;
  EXPECT_NEAR(times.step_s(plan, totals).value(), without + 0.030, 1e-9);
}

// ZB-H1 of p devices and m = 2 p: m (F + I + W) and a bubble of (p - 1) (F + I - the least of the three).
TEST(StageTimes, HalvesOfABackwardAreToldApart) {
  constexpr Nanoseconds kF = 10 * kMillisecond, kI = 20 * kMillisecond, kW = 5 * kMillisecond;
  StepSpans spans;
  for (int stage = 0; stage < 2; ++stage) {
    auto& slot = spans.slots.emplace_back(
        StepSpans::Slot{.replica = ReplicaId{0}, .device = DeviceId{stage}, .stages = {StageId{stage}}, .spans = {}});
    for (int m = 0; m < 4; ++m) {
      slot.spans.push_back({Phase::kForward, MicroBatchId{m}, 0, kF, StageId{stage}});
      slot.spans.push_back({Phase::kBackward, MicroBatchId{m}, 0, kI, StageId{stage}});
      slot.spans.push_back({Phase::kWeightGradient, MicroBatchId{m}, 0, kW, StageId{stage}});
    }
  }
  StageTimes times;
  times.add(spans);
  const Plan plan{.partition = {{1, 1}}, .chunks = 4, .schedule = "zb-h1"};
  EXPECT_NEAR(times.step_s(plan, totals_of(0, 0, 1)).value(), 4 * 0.035 + 0.025, 1e-9);
}

double seconds_of(pipeline::Op op) {
  switch (op) {
    case pipeline::Op::kForward: return 0.010;
    case pipeline::Op::kBackward: return 0.021;
    case pipeline::Op::kInputGradient: return 0.016;
    case pipeline::Op::kWeightGradient: return 0.007;
    case pipeline::Op::kReduceGradient: return 0;
  }
  return 0;
}

// Some schedules run one stage's backward whole for some micro-batches and in halves for the others.
TEST(StageTimes, AreThoseThatArePlantedInAnySchedule) {
  for (const std::string& name : pipeline::schedule_names()) {
    Plan plan{.chunks = 4, .schedule = name, .virtual_stages = pipeline::default_virtual_stages(name)};
    plan.partition.layers_per_stage.assign(static_cast<std::size_t>(2 * plan.virtual_stages), 1);
    const pipeline::Schedule schedule = pipeline::make_train_schedule(plan, plan.chunks);
    StepSpans spans;
    for (const auto& actions : schedule.devices) {
      auto& slot = spans.slots.emplace_back(
          StepSpans::Slot{.replica = ReplicaId{0}, .device = DeviceId{0}, .stages = {StageId{0}}, .spans = {}});
      for (const pipeline::Action& action : actions) {
        if (action.op == pipeline::Op::kReduceGradient) continue;
        const Phase phase = action.op == pipeline::Op::kForward          ? Phase::kForward
                            : action.op == pipeline::Op::kWeightGradient ? Phase::kWeightGradient
                                                                         : Phase::kBackward;
        slot.spans.push_back({phase, action.micro_batch, 0, from_s(seconds_of(action.op)), action.stage});
      }
    }
    StageTimes times;
    times.add(spans);
    times.add(spans);
    const pipeline::StepCost planted{.forward = seconds_of(pipeline::Op::kForward),
                                     .input = seconds_of(pipeline::Op::kInputGradient),
                                     .weight = seconds_of(pipeline::Op::kWeightGradient),
                                     .backward = seconds_of(pipeline::Op::kBackward)};
    const auto stages = static_cast<std::size_t>(plan.stages());
    EXPECT_NEAR(times.step_s(plan, totals_of(0, 0, 1)).value(),
                pipeline::simulate(schedule, {.stages = std::vector(stages, planted)}).makespan, 1e-9)
        << name;
  }
}

TEST(StageTimes, NothingIsSaidOfStepsThatWereNotRecordedInFull) {
  StageTimes times;
  StepSpans spans = step_of(4);
  spans.dropped = 1;
  times.add(spans);
  const Plan plan{.partition = {{1, 1}}, .chunks = 4, .schedule = "gpipe"};
  EXPECT_FALSE(times.step_s(plan, totals_of(0, 0, 1)));
  times.add(step_of(4));
  EXPECT_TRUE(times.step_s(plan, totals_of(0, 0, 1)));
  EXPECT_FALSE(times.step_s({.partition = {{1, 1, 1}}, .chunks = 4}, totals_of(0, 0, 1))) << "another plan";
  EXPECT_FALSE(times.step_s({.partition = {{1, 1}}, .chunks = 4, .frozen_layers = 1}, totals_of(0, 0, 1)));
  EXPECT_FALSE(times.step_s(plan, {}));
}

TEST(PredictionFields, SayHowFarOffItWas) {
  const Prediction prediction{.step_s = 0.09, .by = kByProfile, .device_bytes = {{"cpu:0", 110}, {"cpu:1", 80}}};
  const MeasuredRun measured{
      .step_ms = 100, .by_stages_ms = 98, .device_bytes = {{"process", 1}, {"cpu:0", 100}, {"cpu:1", 100}}};
  const auto fields = prediction_fields(prediction, measured);
  EXPECT_NEAR(fields.at("error"), -0.1, 1e-12);
  EXPECT_NEAR(fields.at("stages_error"), -0.02, 1e-12);
  EXPECT_NEAR(fields.at("memory_error"), -0.2, 1e-12) << "of the device that is furthest off";
  EXPECT_EQ(fields.at("memory_error_device"), "cpu:1");
  EXPECT_EQ(
      prediction_line(fields),
      "a step took 100.0 ms; predicted from the profile: 90.0 ms (-10.0 %), from the measured stage times: 98.0 ms "
      "(-2.0 %); error of the predicted memory: -20.0 % on cpu:1, the largest of all devices");
}

TEST(PredictionFields, LeaveOutWhatIsNotKnown) {
  EXPECT_TRUE(prediction_fields({}, {}).is_null());
  EXPECT_EQ(prediction_line(prediction_fields({}, {})), "");
  const Prediction prediction{.step_s = 0.09, .by = kByLayers, .device_bytes = {{"cpu:0", 110}}};
  const auto changed = prediction_fields(prediction, {.step_ms = 100, .by_stages_ms = {}, .device_bytes = {}});
  EXPECT_FALSE(changed.contains("memory_error"));
  EXPECT_FALSE(changed.contains("by_stages_ms"));
  const auto empty =
      prediction_fields(prediction, {.step_ms = 100, .by_stages_ms = {}, .device_bytes = {{"cpu:0", 0}}});
  EXPECT_FALSE(empty.contains("memory_error")) << "a peak of nothing was not counted";
  EXPECT_EQ(prediction_line(changed), "a step took 100.0 ms; predicted from layer costs: 90.0 ms (-10.0 %)");
  EXPECT_EQ(prediction_line(prediction_fields({}, {.step_ms = 100, .by_stages_ms = 98, .device_bytes = {}})),
            "a step took 100.0 ms; predicted from the measured stage times: 98.0 ms (-2.0 %)");
}

}  // namespace
}  // namespace sluice::report
