#include "profiler/breakdown.h"

#include <gtest/gtest.h>

namespace sluice::profiler {
namespace {

TEST(BreakDown, PartsAreDisjointAndAddUpToTheStep) {
  Recorder recorder;
  Track& track = recorder.add_track(ReplicaId{0}, StageId{0});
  track.add({Phase::kForward, MicroBatchId{0}, 100, 130});
  track.add({Phase::kAllReduce, MicroBatchId{0}, 150, 155});  // inside backward, ends before it
  track.add({Phase::kAllReduce, MicroBatchId{0}, 160, 163});
  track.add({Phase::kBackward, MicroBatchId{0}, 140, 170});
  track.add({Phase::kOptimizer, MicroBatchId{0}, 170, 174});
  const StepBreakdown breakdown = break_down(recorder, 100, {.load = 10});
  ASSERT_EQ(breakdown.stages.size(), 1U);
  const StageBreakdown& stage = breakdown.stages[0];
  EXPECT_EQ(stage[Phase::kLoad], 10);
  EXPECT_EQ(stage[Phase::kForward], 30);
  EXPECT_EQ(stage[Phase::kBackward], 30 - 5 - 3);
  EXPECT_EQ(stage[Phase::kAllReduce], 8);
  EXPECT_EQ(stage[Phase::kOptimizer], 4);
  EXPECT_EQ(stage.idle, 100 - 10 - 30 - 30 - 4);
}

TEST(BreakDown, MeanOverStagesStillAddsUpAndTheSlowestIsNamed) {
  Recorder recorder;
  recorder.add_track(ReplicaId{0}, StageId{0}).add({Phase::kForward, MicroBatchId{0}, 0, 10});
  recorder.add_track(ReplicaId{0}, StageId{1}).add({Phase::kBackward, MicroBatchId{0}, 0, 31});
  const StepBreakdown breakdown = break_down(recorder, 101, {.load = 7});
  const StageBreakdown mean = breakdown.mean();
  Nanoseconds sum = mean.idle;
  for (const Nanoseconds time : mean.of_phase) sum += time;
  EXPECT_EQ(sum, 101);
  EXPECT_EQ(breakdown.slowest_stage(), StageId{1});
  EXPECT_DOUBLE_EQ(breakdown.device_busy()[1], 31.0 / 101.0);
}

TEST(BreakDown, WithoutTracksTheStepIsIdle) { EXPECT_EQ(break_down(Recorder(), 50, {}).mean().idle, 50); }

}  // namespace
}  // namespace sluice::profiler
