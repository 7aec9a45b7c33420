// Sums over processes in a replay: steps made by hand, and random ones beside a few lines that work out the same times.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/rng.h"
#include "tune/recorded_steps.h"
#include "tune/step_replay.h"

namespace sluice::tune {
namespace {

using test::edit_of;
using test::span_of;
using testing::HasSubstr;

// One stage in every process: forward, backward, in which buckets become ready at these shares of it, each summed after
// the one before; then a sum of a few numbers, then the optimizer. Times by the plain rules: nothing waits for anything
// else.
struct OfProcess {
  double forward = 0, backward = 0, optimizer = 0;
  double begin = 0;
};
struct SumsOfStep {
  std::vector<OfProcess> processes;
  std::vector<double> ready_at;  // [bucket]: share of the backward
  std::vector<double> exchange;  // [bucket]
  std::vector<std::int64_t> bytes;
  double small = 0;
};
struct TimesOfStep {
  std::vector<std::vector<double>> ready, end;  // [process][bucket]
  std::vector<double> arrived, summed, done;    // [process]
};

TimesOfStep times_of(const SumsOfStep& step) {
  TimesOfStep times;
  const std::size_t buckets = step.ready_at.size();
  std::vector<double> ends(buckets);
  for (const OfProcess& process : step.processes) {
    auto& ready = times.ready.emplace_back();
    for (const double share : step.ready_at)
      ready.push_back(process.begin + process.forward + share * process.backward);
  }
  double before = 0;
  for (std::size_t b = 0; b < buckets; ++b) {
    double all_ready = before;
    for (const auto& ready : times.ready) all_ready = std::max(all_ready, ready[b]);
    before = ends[b] = all_ready + step.exchange[b];
  }
  double all_arrived = 0;
  for (const OfProcess& process : step.processes) {
    times.arrived.push_back(std::max(process.begin + process.forward + process.backward, before));
    all_arrived = std::max(all_arrived, times.arrived.back());
  }
  for (const OfProcess& process : step.processes) {
    times.end.push_back(ends);
    times.summed.push_back(all_arrived + step.small);
    times.done.push_back(times.summed.back() + process.optimizer);
  }
  return times;
}

std::vector<RecordedProcess> recorded_processes(const SumsOfStep& step) {
  const TimesOfStep times = times_of(step);
  const auto ns = [](double time) { return static_cast<Nanoseconds>(std::llround(time)); };
  std::vector<RecordedProcess> processes;
  for (std::size_t rank = 0; rank < step.processes.size(); ++rank) {
    const OfProcess& of = step.processes[rank];
    const Nanoseconds forward = ns(of.begin + of.forward), backward = ns(of.begin + of.forward + of.backward);
    StepSpans spans{.step = 1, .begin = ns(of.begin), .end = ns(times.done[rank])};
    StepSpans::Slot slot = test::slot_of(0, 0, {0}, {span_of(Phase::kForward, ns(of.begin), forward, 0, 0)});
    for (std::size_t b = 0; b < step.ready_at.size(); ++b) {
      const Nanoseconds ready = ns(times.ready[rank][b]);
      slot.spans.push_back(span_of(Phase::kAllReduce, ready, ready, 0));
      spans.buckets.push_back({StageId{0}, static_cast<int>(b), ready, ready, ns(times.end[rank][b]), step.bytes[b]});
    }
    slot.spans.push_back(span_of(Phase::kBackward, forward, backward, 0, 0));
    slot.spans.push_back(span_of(Phase::kOptimizer, ns(times.summed[rank]), ns(times.done[rank]), 0));
    spans.slots = {slot};
    spans.process = {span_of(Phase::kAllReduce, backward, ns(times.summed[rank]))};
    processes.push_back(test::recorded_process(std::move(spans)));
  }
  return processes;
}

// Forward 100, backward 100; buckets ready at a half and the end, sums of 30; 5 for the numbers; optimizer 10.
SumsOfStep two_processes() {
  return {.processes = {{100, 100, 10, 0}, {100, 140, 10, 0}},
          .ready_at = {0.5, 1},
          .exchange = {30, 30},
          .bytes = {1000, 3000},
          .small = 5};
}

TEST(StepReplaySums, TheSlowerProcessIsWaitedFor) {
  const std::vector<RecordedProcess> recorded = recorded_processes(two_processes());
  const auto replayed = [&](const WorkEdit& edit) { return replay_step(recorded, {.work = {edit}}).step; };
  EXPECT_EQ(replay_step(recorded).step, 240 + 30 + 5 + 10);
  EXPECT_EQ(replayed(edit_of({.kind = WorkKind::kBackward, .rank = 1}, 0.5)), 200 + 30 + 5 + 10);
  EXPECT_EQ(replayed(edit_of({.kind = WorkKind::kBackward, .rank = 0}, 1.2)), 240 + 30 + 5 + 10);
  EXPECT_EQ(replayed(edit_of({.kind = WorkKind::kAllReduce}, 3)), 170 + 90 + 90 + 5 * 3 + 10);
  EXPECT_EQ(replayed(edit_of({.kind = WorkKind::kAllReduce, .stage = 0}, 0)), 240 + 5 + 10);
}

TEST(StepReplaySums, ANetworkCarriesTheBytesOfARing) {
  const std::vector<RecordedProcess> recorded = recorded_processes(two_processes());
  const auto replayed = [&](double bytes_per_s, double latency_s, double sum_s = 0) {
    return replay_step(recorded, {.network = StepEdits::Network{bytes_per_s, latency_s, sum_s}}).step;
  };
  // Two processes send 2 (2 - 1) / 2 of the bytes, in two messages: 10 bytes a nanosecond, 50 ns a message.
  EXPECT_EQ(replayed(10e9, 50e-9), std::max(240, 170 + 100 + 100) + (300 + 100) + 100 + 10);
  EXPECT_EQ(replayed(100e9, 0, 7e-9), 240 + 30 + 7 + 5 + 10);
  EXPECT_NEAR(*shortest_sum(recorded), 5e-9, 1e-18);  // that of the numbers
}

// Two threads may carry sums of one stage at once (c10d's Gloo does): one that ended before an earlier one did not
// wait.
TEST(StepReplaySums, ASumThatRanBesideAnotherDoesNotWaitForIt) {
  SumsOfStep step = two_processes();
  step.exchange = {100, 0};
  std::vector<RecordedProcess> recorded = recorded_processes(step);  // until 270
  for (RecordedProcess& process : recorded) process.spans.buckets[1].end = 250;
  const StepReplay replay = replay_step(recorded, {.work = {edit_of({.kind = WorkKind::kAllReduce}, 0.5)}});
  EXPECT_EQ(replay.processes[0].buckets[0].end, 170 + 50);
  EXPECT_EQ(replay.processes[0].buckets[1].end, 240 + 5);
}

// Two stages' sums share a network that is given, in the order in which they were ready.
TEST(StepReplaySums, AGivenNetworkIsSharedByAllStages) {
  StepSpans spans{.step = 1, .end = 300};
  const auto slot = [](int device, Nanoseconds forward) {
    return test::slot_of(
        0, device, {device},
        {span_of(Phase::kForward, 0, forward, device, 0), span_of(Phase::kBackward, forward, 100, device, 0),
         span_of(Phase::kAllReduce, 100, 101 + device, device), span_of(Phase::kOptimizer, 280, 290, device)});
  };
  spans.slots = {slot(0, 40), slot(1, 30)};
  spans.buckets = {{StageId{0}, 0, 100, 100, 250, 1000}, {StageId{1}, 0, 101, 101, 270, 3000}};
  spans.process = {span_of(Phase::kAllReduce, 102, 275)};
  const std::vector<RecordedProcess> recorded{test::recorded_process(spans), test::recorded_process(spans)};
  EXPECT_EQ(replay_step(recorded).step, 300);
  const StepReplay replay = replay_step(recorded, {.network = StepEdits::Network{.bytes_per_s = 10e9}});
  EXPECT_EQ(replay.processes[0].buckets[0].end, 100 + 100);
  EXPECT_EQ(replay.processes[0].buckets[1].end, 200 + 300);
  EXPECT_EQ(replay.step, 300 + 500 - 270);
}

TEST(StepReplaySums, AReplicaThatIsLateHoldsTheBucketBack) {
  StepSpans spans{.step = 1, .end = 150};
  const auto slot = [](int replica, Nanoseconds forward) {
    return test::slot_of(replica, 0, {0},
                         {span_of(Phase::kForward, 0, forward, 0, 0), span_of(Phase::kAllReduce, 60, 60, 0),
                          span_of(Phase::kBackward, forward, 80, 0, 0), span_of(Phase::kOptimizer, 140, 150, 0)});
  };
  spans.slots = {slot(0, 40), slot(1, 30)};
  spans.buckets = {{StageId{0}, 0, 60, 60, 130, 8}};
  spans.process = {span_of(Phase::kAllReduce, 80, 130)};
  std::vector<RecordedProcess> recorded{test::recorded_process(spans), test::recorded_process(spans)};
  EXPECT_EQ(replay_step(recorded).step, 150);
  const auto replayed = [&](int replica, double more) {
    return replay_step(recorded, {.work = {edit_of({.kind = WorkKind::kForward, .replica = replica}, 1, more)}}).step;
  };
  // Replica 0 completed the bucket, when half of its backward was over; the other one is taken to have been ready when
  // half of its own was, at 55.
  EXPECT_EQ(replayed(0, 12), 162);
  EXPECT_EQ(replayed(1, 12), 157);
  EXPECT_EQ(replayed(1, -12), 150);
}

TEST(StepReplaySums, RandomEditsAreWhatPlainRulesSay) {
  RngStream random(5);
  const auto pick = [&](int low, int high) {
    return static_cast<double>(low + static_cast<int>(random.below(high - low + 1)));
  };
  int changed = 0;
  for (int round = 0; round < 300; ++round) {
    SumsOfStep step;
    const int buckets = static_cast<int>(pick(1, 4));
    for (int i = static_cast<int>(pick(2, 4)); i > 0; --i)
      step.processes.push_back({100 * pick(1, 20), 1000 * pick(1, 20), 10 * pick(1, 20), pick(0, 900)});
    for (int b = 1; b <= buckets; ++b) step.ready_at.push_back(static_cast<double>(b) / buckets);
    for (int b = 0; b < buckets; ++b) {
      step.exchange.push_back(10 * pick(1, 900));
      step.bytes.push_back(static_cast<std::int64_t>(pick(1, 100000)));
    }
    step.small = pick(1, 500);
    const std::vector<RecordedProcess> recorded = recorded_processes(step);
    const double before = times_of(step).done[0];
    const int rank = static_cast<int>(pick(0, static_cast<int>(step.processes.size()) - 1));
    StepEdits edits;
    edits.work.push_back(edit_of({.kind = WorkKind::kBackward, .rank = rank}, 1.5));
    step.processes[rank].backward *= 1.5;
    edits.work.push_back(edit_of({.kind = WorkKind::kForward}, 0.5));
    for (OfProcess& process : step.processes) process.forward *= 0.5;
    edits.work.push_back(edit_of({.kind = WorkKind::kAllReduce}, 2));
    for (double& exchange : step.exchange) exchange *= 2;
    step.small *= 2;
    const double after = times_of(step).done[0];
    changed += std::abs(after - before) > 100 ? 1 : 0;
    const StepReplay replay = replay_step(recorded, edits);
    // Recorded times are rounded; of the backward, the piece in which a bucket is ready is.
    EXPECT_NEAR(static_cast<double>(replay.step), after - step.processes[0].begin, 12) << round;
  }
  EXPECT_GT(changed, 200);
}

TEST(StepReplaySums, WhatDoesNotFitIsRefused) {
  const auto refusal = [](const std::vector<RecordedProcess>& recorded, const StepEdits& edits = {}) -> std::string {
    try {
      (void)replay_step(recorded, edits);
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  };
  std::vector<RecordedProcess> recorded = recorded_processes(two_processes());
  EXPECT_EQ(refusal(recorded), "none");
  std::vector<RecordedProcess> without_bytes = recorded;
  for (RecordedProcess& process : without_bytes) process.spans.buckets[1].bytes = 0;
  EXPECT_EQ(refusal(without_bytes), "none");
  EXPECT_THAT(refusal(without_bytes, {.network = StepEdits::Network{1e9}}),
              HasSubstr("the trace lacks the sizes of its all-reduces"));
  recorded[1].spans.buckets.pop_back();
  EXPECT_THAT(refusal(recorded), HasSubstr("rank 0 and rank 1 have different all-reduces"));
}

}  // namespace
}  // namespace sluice::tune
