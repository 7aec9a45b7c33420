// read_trace_steps(): what trace_text() wrote comes back, to the nanosecond; what is no such file is refused.
#include "profiler/trace_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "core/error.h"

namespace sluice::profiler {
namespace {

using testing::HasSubstr;

Span timed(Phase phase, int stage, int micro_batch, Nanoseconds begin, Nanoseconds end) {
  return {phase, MicroBatchId{micro_batch}, begin, end, StageId{stage}, begin, end};
}

// Odd nanoseconds, of a clock that is 500 ahead of rank 0's.
TracedStep recorded(std::int64_t number, Nanoseconds at) {
  StepSpans spans{.step = number, .begin = at, .end = at + 90'000'001};
  spans.slots = {
      {ReplicaId{0},
       DeviceId{0},
       {StageId{0}, StageId{2}},
       {timed(Phase::kHostToDevice, 0, 0, at + 3, at + 8), timed(Phase::kForward, 0, 0, at + 11, at + 5'000'013),
        timed(Phase::kSend, 0, 0, at + 5'000'013, at + 5'000'013),
        timed(Phase::kReceiveWait, 2, 0, at + 5'000'020, at + 6'000'001),
        timed(Phase::kReceive, 2, 0, at + 6'000'001, at + 6'000'003),
        timed(Phase::kLoss, 2, 0, at + 6'500'001, at + 6'900'001),
        timed(Phase::kForward, 2, 0, at + 6'000'009, at + 7'000'001),
        timed(Phase::kWeightGradient, 2, 0, at + 7'000'002, at + 8'000'001),
        timed(Phase::kAllReduce, 2, -1, at + 8'000'002, at + 8'000'009),
        timed(Phase::kOptimizer, 0, -1, at + 80'000'000, at + 85'000'007)}},
      {ReplicaId{1}, DeviceId{0}, {StageId{1}}, {timed(Phase::kForward, 1, 0, at + 1, at + 4'000'002)}},
      {ReplicaId{1}, DeviceId{1}, {}, {timed(Phase::kForward, -1, 0, at + 1, at + 4'000'002)}}};
  spans.slots[0].spans[4].is_beside = true;
  spans.process = {timed(Phase::kLoadWait, -1, -1, at, at + 2),
                   timed(Phase::kAllReduce, -1, -1, at + 9'000'000, at + 9'500'000)};
  spans.buckets = {{StageId{2}, 0, at + 8'000'005, at + 8'000'105, at + 9'000'001, 4096},
                   {StageId{0}, 1, at + 8'100'005, at + 8'100'005, at + 9'000'002, 0}};
  return {std::move(spans),
          {{{ReplicaId{0}, DeviceId{0}}, "cpu:0"},
           {{ReplicaId{1}, DeviceId{0}}, "cuda:3"},
           {{ReplicaId{1}, DeviceId{1}}, "cpu:2"}}};
}

const TraceProcess kProcess{.rank = 1,
                            .processes = 2,
                            .host = "host",
                            .pid = 4711,
                            .backend = "gloo",
                            .clock = TraceClock{.offset = 500, .error = 3},
                            .base = 700'000,
                            .base_epoch = 1'234'567};

TraceOfProcess read(const std::string& text) {
  std::istringstream in(text);
  return read_trace_steps(in, "the file");
}

void expect_same(const Span& found, const Span& wanted, Nanoseconds earlier) {
  EXPECT_EQ(found.phase, wanted.phase);
  EXPECT_EQ(found.begin, wanted.begin - earlier);
  EXPECT_EQ(found.end, wanted.end - earlier);
  EXPECT_EQ(found.stage, wanted.stage);
  EXPECT_EQ(found.micro_batch, wanted.micro_batch);
  EXPECT_EQ(found.is_beside, wanted.is_beside);
}

TEST(TraceSteps, ComeBackAsTheyWereRecorded) {
  std::vector<TracedStep> steps{recorded(7, 800'001), recorded(8, 100'800'001)};
  steps[0].outside = {timed(Phase::kEvaluation, -1, -1, 95'000'000, 96'000'000)};
  const TraceOfProcess trace = read(trace_text(kProcess, steps));
  EXPECT_EQ(trace.rank, 1);
  EXPECT_EQ(trace.processes, 2);
  EXPECT_FALSE(trace.has_own_clock);
  EXPECT_EQ(trace.base_epoch, 1'234'567);
  ASSERT_EQ(trace.steps.size(), 2);
  constexpr Nanoseconds kEarlier = 500 + 700'000;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const StepSpans& found = trace.steps[i].spans;
    const StepSpans& wanted = steps[i].spans;
    EXPECT_EQ(found.step, wanted.step);
    EXPECT_EQ(found.begin, wanted.begin - kEarlier);
    EXPECT_EQ(found.end, wanted.end - kEarlier);
    EXPECT_EQ(found.dropped, 0);
    EXPECT_EQ(trace.steps[i].devices, steps[i].devices);
    ASSERT_EQ(found.slots.size(), wanted.slots.size());
    for (std::size_t p = 0; p < wanted.slots.size(); ++p) {
      EXPECT_EQ(found.slots[p].replica, wanted.slots[p].replica);
      EXPECT_EQ(found.slots[p].device, wanted.slots[p].device);
      EXPECT_EQ(found.slots[p].stages, wanted.slots[p].stages);
      ASSERT_EQ(found.slots[p].spans.size(), wanted.slots[p].spans.size());
      for (std::size_t s = 0; s < wanted.slots[p].spans.size(); ++s)
        expect_same(found.slots[p].spans[s], wanted.slots[p].spans[s], kEarlier);
    }
    ASSERT_EQ(found.process.size(), wanted.process.size());
    for (std::size_t s = 0; s < wanted.process.size(); ++s) expect_same(found.process[s], wanted.process[s], kEarlier);
    ASSERT_EQ(found.buckets.size(), wanted.buckets.size());
    for (std::size_t b = 0; b < wanted.buckets.size(); ++b) {
      EXPECT_EQ(found.buckets[b].stage, wanted.buckets[b].stage);
      EXPECT_EQ(found.buckets[b].bucket, wanted.buckets[b].bucket);
      EXPECT_EQ(found.buckets[b].begin, wanted.buckets[b].begin - kEarlier);
      EXPECT_EQ(found.buckets[b].all_there, wanted.buckets[b].all_there - kEarlier);
      EXPECT_EQ(found.buckets[b].end, wanted.buckets[b].end - kEarlier);
      EXPECT_EQ(found.buckets[b].bytes, wanted.buckets[b].bytes);
    }
  }
}

TEST(TraceSteps, TellWhatTheTraceLacks) {
  TracedStep step = recorded(7, 800'001);
  step.spans.dropped = 12;
  EXPECT_EQ(read(trace_text(kProcess, std::vector{step})).steps.at(0).spans.dropped, 12);
  TraceProcess of_server = kProcess;
  of_server.clock = std::nullopt;
  EXPECT_TRUE(read(trace_text(of_server, std::vector{step})).has_own_clock);
}

std::string refusal_of(const std::string& text) {
  try {
    (void)read(text);
  } catch (const DataError& error) {
    return error.what();
  }
  return "none";
}

TEST(TraceSteps, WhatIsNoTraceOfOursIsRefused) {
  const std::string whole = trace_text(kProcess, std::vector{recorded(7, 800'001)});
  EXPECT_EQ(refusal_of(whole), "none");
  for (const std::size_t length : {std::size_t{0}, std::size_t{20}, whole.size() / 2, whole.size() - 3})
    EXPECT_THAT(refusal_of(whole.substr(0, length)), HasSubstr("the file is damaged or was cut")) << length;
  for (const char* text :
       {"{}", "[]", "3", R"({"traceEvents": []})", R"({"traceEvents": [{"ph": "X"}]})",
        R"({"traceEvents": [{"ph": 7}]})",
        R"({"traceEvents": [{"ph": "X", "cat": "kernel", "args": {"phase": "forward", "step": "a"}}]})"})
    EXPECT_THAT(refusal_of(text), HasSubstr("is not a trace that `sluice train --trace`")) << text;
}

}  // namespace
}  // namespace sluice::profiler
