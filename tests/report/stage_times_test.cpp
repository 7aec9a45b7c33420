// What a run's own stages say of its steps, and how a prediction is told beside them.
#include "report/stage_times.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "report/prediction.h"

namespace sluice::report {
namespace {

constexpr Nanoseconds kMillisecond = 1'000'000;

// Two stages of forward 10 and 20 ms, backward 20 and 40 ms a micro-batch, on a device each. more: of each stage's
// first forward and first backward.
StepSpans step_of(int chunks, Nanoseconds more = 0) {
  StepSpans spans;
  for (int stage = 0; stage < 2; ++stage) {
    StepSpans::Place place{.replica = ReplicaId{0}, .device = DeviceId{stage}, .stages = {StageId{stage}}, .spans = {}};
    Nanoseconds time = 0;
    for (int m = 0; m < chunks; ++m) {
      const Nanoseconds first = m == 0 ? more : 0, usual = (stage + 1) * 10 * kMillisecond, length = usual + first;
      // The loss lies within the forward, a sum within the backward; what ends first comes first.
      if (stage == 1)
        place.spans.push_back(
            {Phase::kLoss, MicroBatchId{m}, time + length - kMillisecond, time + length, StageId{stage}});
      place.spans.push_back({Phase::kForward, MicroBatchId{m}, time, time + length, StageId{stage}});
      time += length;
      place.spans.push_back({Phase::kAllReduce, kNoMicroBatch, time + kMillisecond, time + 4 * kMillisecond, kNoStage});
      place.spans.push_back(
          {Phase::kBackward, MicroBatchId{m}, time, time + 2 * usual + first + 3 * kMillisecond, StageId{stage}});
      time += 2 * usual + first + 3 * kMillisecond;
    }
    spans.places.push_back(place);
  }
  return spans;
}

PlaceTotals totals_of(Nanoseconds sums, Nanoseconds update, std::int64_t steps) {
  PlaceTotals totals(2);
  for (int device = 0; device < 2; ++device) {
    PlaceTotal& total = totals[device];
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
  EXPECT_EQ(
      prediction_line(fields),
      "predicted by the profile: 90.0 ms a step (-10.0 %), from what stages took: 98.0 ms (-2.0 %), memory -20.0 %");
}

TEST(PredictionFields, LeaveOutWhatIsNotKnown) {
  EXPECT_TRUE(prediction_fields({}, {}).is_null());
  EXPECT_EQ(prediction_line(prediction_fields({}, {})), "");
  const Prediction prediction{.step_s = 0.09, .by = kByLayers, .device_bytes = {{"cpu:0", 110}}};
  const auto changed = prediction_fields(prediction, {.step_ms = 100, .by_stages_ms = {}, .device_bytes = {}});
  EXPECT_FALSE(changed.contains("memory_error"));
  EXPECT_FALSE(changed.contains("by_stages_ms"));
  EXPECT_EQ(prediction_line(changed), "predicted by the layers: 90.0 ms a step (-10.0 %)");
  EXPECT_EQ(prediction_line(prediction_fields({}, {.step_ms = 100, .by_stages_ms = 98, .device_bytes = {}})),
            "predicted from what stages took: 98.0 ms (-2.0 %)");
}

}  // namespace
}  // namespace sluice::report
