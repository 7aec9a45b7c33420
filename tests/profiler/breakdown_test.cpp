#include "profiler/breakdown.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

namespace sluice::profiler {
namespace {

constexpr MicroBatchId kFirst{0};

Nanoseconds sum_of(const SlotBreakdown& stage) {
  return std::accumulate(stage.parts.begin(), stage.parts.end(), Nanoseconds{0});
}

StepSpans::Slot slot(int replica, int stage, std::vector<Span> spans) {
  return {ReplicaId{replica}, DeviceId{stage}, {StageId{stage}}, std::move(spans)};
}

TEST(BreakDown, ASpanInsideAnotherIsTakenOutOfIt) {
  const StepSpans spans{.begin = 0,
                        .end = 100,
                        .slots = {slot(0, 0,
                                       {{Phase::kForward, kFirst, 10, 40},
                                        {Phase::kLoss, kFirst, 36, 40},
                                        {Phase::kAllReduce, kFirst, 50, 55},
                                        {Phase::kAllReduce, kFirst, 60, 63},
                                        {Phase::kBackward, kFirst, 45, 70},
                                        {Phase::kOptimizer, kNoMicroBatch, 80, 84}})},
                        .process = {{Phase::kLoadWait, kNoMicroBatch, 0, 8}}};
  const SlotBreakdown stage = break_down(spans).slots.at(0);
  EXPECT_EQ(stage[Part::kLoad], 8);
  EXPECT_EQ(stage[Part::kForward], 26);
  EXPECT_EQ(stage[Part::kLoss], 4);
  EXPECT_EQ(stage[Part::kBackward], 25 - 8);
  EXPECT_EQ(stage[Part::kAllReduce], 8);
  EXPECT_EQ(stage[Part::kOptimizer], 4);
  EXPECT_EQ(stage.all_reduce, 8);
  EXPECT_EQ(stage[Part::kOther], 100 - 8 - 30 - 25 - 4);
  EXPECT_EQ(sum_of(stage), 100);
}

TEST(BreakDown, AnAllReduceIsHiddenBehindBackwardAndItsRestIsSkewThenTransfer) {
  const StepSpans spans{
      .begin = 0,
      .end = 100,
      .slots = {slot(0, 0, {{Phase::kBackward, kFirst, 0, 50}, {Phase::kOptimizer, kNoMicroBatch, 90, 100}})},
      .buckets = {{StageId{0}, 0, 20, 30, 45}, {StageId{0}, 1, 48, 60, 85}}};
  const SlotBreakdown stage = break_down(spans).slots.at(0);
  EXPECT_EQ(stage[Part::kBackward], 50);
  EXPECT_EQ(stage[Part::kSkew], 10);       // 50 .. 60
  EXPECT_EQ(stage[Part::kAllReduce], 25);  // 60 .. 85
  EXPECT_EQ(stage.all_reduce, 25 + 37);    // hidden or not
  EXPECT_EQ(stage[Part::kOther], 5);
}

// Copies and sums over replicas on queues of their own: exposed while the slot does nothing else, nor waits.
TEST(BreakDown, WhatGoesOnBesideCountsWhereTheSlotDoesNothingElse) {
  const auto beside = [](Phase phase, Nanoseconds begin, Nanoseconds end) {
    Span span{phase, kFirst, begin, end};
    span.is_beside = true;
    return span;
  };
  const StepSpans spans{.begin = 0,
                        .end = 100,
                        .slots = {slot(0, 0,
                                       {beside(Phase::kHostToDevice, 5, 15),
                                        {Phase::kForward, kFirst, 10, 40},
                                        beside(Phase::kReceive, 35, 50),
                                        {Phase::kReceiveWait, kFirst, 50, 60},
                                        beside(Phase::kReceive, 55, 65),
                                        {Phase::kBackward, kFirst, 65, 80},
                                        beside(Phase::kAllReduce, 75, 90),
                                        {Phase::kOptimizer, kNoMicroBatch, 90, 100}})}};
  const SlotBreakdown stage = break_down(spans).slots.at(0);
  EXPECT_EQ(stage[Part::kHostToDevice], 5);
  EXPECT_EQ(stage[Part::kForward], 30);
  EXPECT_EQ(stage[Part::kStageCopy], 10 + 5);
  EXPECT_EQ(stage.bubble(), 10);
  EXPECT_EQ(stage[Part::kBackward], 15);
  EXPECT_EQ(stage[Part::kAllReduce], 10);
  EXPECT_EQ(stage.all_reduce, 15);
  EXPECT_EQ(stage.all_reduce_hidden(), 5);
  EXPECT_EQ(stage[Part::kOther], 5);
  EXPECT_EQ(sum_of(stage), 100);
}

TEST(BreakDown, BubblesAreFillSteadyAndDrain) {
  // Stage 0 waits for its first gradient, between gradients, and at the end for nobody; stage 1 for its first input and
  // for the end of stage 0.
  const StepSpans spans{.begin = 0,
                        .end = 100,
                        .slots = {slot(0, 0,
                                       {{Phase::kForward, MicroBatchId{0}, 0, 10},
                                        {Phase::kReceiveWait, MicroBatchId{0}, 10, 30},
                                        {Phase::kBackward, MicroBatchId{0}, 30, 50},
                                        {Phase::kReceiveWait, MicroBatchId{1}, 50, 54},
                                        {Phase::kForward, MicroBatchId{1}, 54, 60},
                                        {Phase::kReceiveWait, MicroBatchId{1}, 60, 70},
                                        {Phase::kBackward, MicroBatchId{1}, 70, 90}}),
                                  slot(0, 1,
                                       {{Phase::kReceiveWait, MicroBatchId{0}, 0, 10},
                                        {Phase::kForward, MicroBatchId{0}, 10, 20},
                                        {Phase::kBackward, MicroBatchId{0}, 20, 30}})}};
  const StepBreakdown breakdown = break_down(spans);
  EXPECT_EQ(breakdown.slots[0][Part::kFill], 20);
  EXPECT_EQ(breakdown.slots[0][Part::kSteady], 4);
  EXPECT_EQ(breakdown.slots[0][Part::kDrain], 10);
  EXPECT_EQ(breakdown.slots[1][Part::kFill], 10);
  EXPECT_EQ(breakdown.slots[1][Part::kDrain], 60);
  EXPECT_EQ(breakdown.slots[1][Part::kOther], 10);
}

TEST(BreakDown, AReplicaThatIsDoneEarlyWaitsForTheSlowest) {
  const StepSpans spans{
      .begin = 0,
      .end = 50,
      .slots = {slot(0, 0, {{Phase::kBackward, kFirst, 0, 10}}), slot(1, 0, {{Phase::kBackward, kFirst, 0, 45}})}};
  const StepBreakdown breakdown = break_down(spans);
  EXPECT_EQ(breakdown.slots[0][Part::kSkew], 35);
  EXPECT_EQ(breakdown.slots[1][Part::kSkew], 0);
}

TEST(BreakDown, MeanOverStagesStillAddsUpAndTheSlowestIsNamed) {
  const StepSpans spans{
      .begin = 0,
      .end = 101,
      .slots = {slot(0, 0, {{Phase::kForward, kFirst, 0, 10}}), slot(0, 1, {{Phase::kBackward, kFirst, 0, 31}})}};
  const StepBreakdown breakdown = break_down(spans);
  EXPECT_EQ(sum_of(breakdown.mean()), 101);
  EXPECT_EQ(breakdown.slowest_device(), DeviceId{1});
  EXPECT_DOUBLE_EQ(breakdown.device_busy()[1], 31.0 / 101.0);
}

TEST(BreakDown, TheSlowestDeviceIsSoOverAllReplicas) {
  const auto busy_for = [](int replica, int device, Nanoseconds time) {
    return slot(replica, device, {{Phase::kForward, kFirst, 0, time}});
  };
  const StepSpans spans{.begin = 0,
                        .end = 100,
                        .slots = {busy_for(0, 0, 60), busy_for(0, 1, 20), busy_for(1, 0, 30), busy_for(1, 1, 40)}};
  EXPECT_EQ(break_down(spans).slowest_device(), DeviceId{0}) << "90 of device 0, 60 of device 1";
}

TEST(BreakDown, TheMeanOfTheAllReduceIsOverStagesToo) {
  const StepSpans spans{
      .begin = 0,
      .end = 100,
      .slots = {slot(0, 0, {{Phase::kBackward, kFirst, 0, 50}}), slot(0, 1, {{Phase::kBackward, kFirst, 0, 50}})},
      .buckets = {{StageId{0}, 0, 40, 40, 70}, {StageId{1}, 0, 50, 50, 60}}};
  const StepBreakdown breakdown = break_down(spans);
  EXPECT_EQ(breakdown.slots[0].all_reduce, 30);
  EXPECT_EQ(breakdown.slots[1].all_reduce, 20) << "its own bucket, and it waits for the other stage's until 70";
  const SlotBreakdown mean = breakdown.mean();
  EXPECT_EQ(mean.all_reduce, 25);
  EXPECT_EQ(mean.all_reduce_exposed(), 20);
  EXPECT_EQ(mean.all_reduce_hidden(), 5);
}

TEST(BreakDown, WithoutSlotsTheStepIsOther) {
  EXPECT_EQ(break_down({.begin = 10, .end = 60}).mean()[Part::kOther], 50);
}

// The moments of a slot's pass, found one by one.
struct Moments {
  Nanoseconds end = 0, end_of_replica = 0, end_of_pass = 0;
  Nanoseconds first_backward = std::numeric_limits<Nanoseconds>::max(), last_forward = 0;
};

Nanoseconds end_of(const StepSpans::Slot& p, Nanoseconds begin) {
  Nanoseconds end = begin, optimizer = std::numeric_limits<Nanoseconds>::max();
  for (const Span& s : p.spans) {
    if (s.phase == Phase::kOptimizer) optimizer = std::min(optimizer, s.begin);
  }
  for (const Span& s : p.spans) {
    if (s.begin < optimizer) end = std::max(end, s.end);
  }
  return end;
}

Moments moments_of(const StepSpans& all, const StepSpans::Slot& own) {
  Moments moments{.end = end_of(own, all.begin)};
  for (const auto& p : all.slots) {
    moments.end_of_pass = std::max(moments.end_of_pass, end_of(p, all.begin));
    if (p.replica == own.replica) moments.end_of_replica = std::max(moments.end_of_replica, end_of(p, all.begin));
  }
  for (const Span& s : own.spans) {
    if (s.phase == Phase::kBackward) moments.first_backward = std::min(moments.first_backward, s.begin);
    if (s.phase == Phase::kForward) moments.last_forward = std::max(moments.last_forward, s.end);
  }
  return moments;
}

Part part_of(const Span& span, const Moments& moments) {
  switch (span.phase) {
    case Phase::kForward: return Part::kForward;
    case Phase::kLoss: return Part::kLoss;
    case Phase::kBackward: return Part::kBackward;
    case Phase::kAllReduce: return Part::kAllReduce;
    case Phase::kOptimizer: return Part::kOptimizer;
    case Phase::kReceive: return Part::kStageCopy;
    default: break;
  }
  if (span.end <= moments.first_backward) return Part::kFill;
  return span.begin >= moments.last_forward ? Part::kDrain : Part::kSteady;
}

// What a thread that does nothing waits for at `t`.
bool owns(const StepSpans::Slot& slot, StageId stage) {
  return std::ranges::find(slot.stages, stage) != slot.stages.end();
}

Part waiting_part(const StepSpans& all, const StepSpans::Slot& slot, Nanoseconds t, const Moments& moments) {
  const auto now = [t](Nanoseconds begin, Nanoseconds end) { return begin <= t && t < end; };
  const auto in_bucket = [&](bool own, auto begin, auto end) {
    return std::ranges::any_of(
        all.buckets, [&](const BucketSpan& b) { return owns(slot, b.stage) == own && now(b.*begin, b.*end); });
  };
  const auto in_process = [&](Phase phase) {
    return std::ranges::any_of(all.process, [&](const Span& s) { return s.phase == phase && now(s.begin, s.end); });
  };
  if (now(moments.end, moments.end_of_replica)) return Part::kDrain;
  if (now(moments.end_of_replica, moments.end_of_pass)) return Part::kSkew;
  for (const bool own : {true, false}) {
    if (in_bucket(own, &BucketSpan::all_there, &BucketSpan::end)) return Part::kAllReduce;
    if (in_bucket(own, &BucketSpan::begin, &BucketSpan::all_there)) return Part::kSkew;
  }
  if (in_process(Phase::kAllReduce)) return Part::kAllReduce;
  return in_process(Phase::kLoadWait) ? Part::kLoad : Part::kOther;
}

const Span* innermost(const std::vector<Span>& spans, Nanoseconds t) {
  const Span* inner = nullptr;
  for (const Span& s : spans) {
    const bool is_inner = inner == nullptr || s.end - s.begin < inner->end - inner->begin;
    if (s.begin <= t && t < s.end && is_inner) inner = &s;
  }
  return inner;
}

// Nanosecond by nanosecond, by the rules in the header: what the thread does, innermost span first; else what it waits
// for.
SlotBreakdown brute_force(const StepSpans& all, const StepSpans::Slot& own) {
  const Moments moments = moments_of(all, own);
  SlotBreakdown result{own.replica, own.device};
  for (Nanoseconds t = all.begin; t < all.end; ++t) {
    const Span* inner = innermost(own.spans, t);
    const Part part = inner != nullptr ? part_of(*inner, moments) : waiting_part(all, own, t, moments);
    ++result[part];
    const bool is_under_way = std::ranges::any_of(
        all.buckets, [&](const BucketSpan& b) { return owns(own, b.stage) && b.begin <= t && t < b.end; });
    result.all_reduce += is_under_way || part == Part::kAllReduce || part == Part::kSkew ? 1 : 0;
  }
  return result;
}

// A step of random slots: actions one after the other with gaps, now and then a span inside another.
StepSpans random_step(std::mt19937& random) {
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  StepSpans step{.begin = 100, .end = 100 + pick(60, 200)};
  const int replicas = pick(1, 2), stages = pick(1, 3), virtual_stages = pick(1, 2);
  for (int i = 0; i < replicas * stages; ++i) {
    StepSpans::Slot p = slot(i / stages, i % stages, {});
    if (virtual_stages == 2) p.stages.push_back(StageId{stages + i % stages});
    Nanoseconds at = step.begin + pick(0, 20);
    for (int action = pick(1, 6); action > 0; --action) {
      constexpr std::array kPhases{Phase::kForward, Phase::kBackward, Phase::kReceiveWait, Phase::kReceive};
      const Span span{kPhases[pick(0, 3)], kFirst, at, at + pick(3, 15)};
      p.spans.push_back(span);
      if (span.phase == Phase::kBackward && pick(0, 1) == 1)
        p.spans.push_back({Phase::kAllReduce, kFirst, span.begin + 1, span.begin + 2});
      if (span.phase == Phase::kForward && pick(0, 1) == 1)
        p.spans.push_back({Phase::kLoss, kFirst, span.end - 1, span.end});
      at = span.end + pick(0, 6);
    }
    if (pick(0, 1) == 1) p.spans.push_back({Phase::kOptimizer, kNoMicroBatch, at + 1, at + 9});
    step.slots.push_back(std::move(p));
  }
  for (int i = pick(0, 4); i > 0; --i) {
    const Nanoseconds begin = step.begin + pick(0, 150), there = begin + pick(0, 20);
    step.buckets.push_back({StageId{pick(0, virtual_stages * stages - 1)}, i, begin, there, there + pick(0, 30)});
  }
  step.process.push_back({Phase::kLoadWait, kNoMicroBatch, step.begin, step.begin + pick(0, 30)});
  step.process.push_back({Phase::kAllReduce, kNoMicroBatch, step.end - pick(10, 60), step.end - pick(0, 9)});
  return step;
}

TEST(BreakDown, EqualsBruteForceOnRandomSteps) {
  std::mt19937 random(5);
  for (int round = 0; round < 500; ++round) {
    StepSpans step = random_step(random);
    const StepBreakdown breakdown = break_down(step);
    for (std::size_t i = 0; i < step.slots.size(); ++i) {
      const SlotBreakdown expected = brute_force(step, step.slots[i]);
      EXPECT_EQ(sum_of(breakdown.slots[i]), step.end - step.begin);
      ASSERT_EQ(breakdown.slots[i].parts, expected.parts) << "round " << round << " place " << i;
      ASSERT_GE(breakdown.slots[i].all_reduce_hidden(), 0);
      ASSERT_EQ(breakdown.slots[i].all_reduce, expected.all_reduce) << "round " << round << " place " << i;
    }
  }
}

}  // namespace
}  // namespace sluice::profiler
