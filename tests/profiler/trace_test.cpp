// What readers of traces ask for (docs/how-to/profile.md), on steps made by the test.
#include "profiler/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <regex>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "profiler/breakdown.h"

namespace sluice::profiler {
namespace {

using nlohmann::json;

constexpr Nanoseconds kUs = 1000;

Span span(Phase phase, int stage, int micro_batch, Nanoseconds begin, Nanoseconds end) {
  return {phase, MicroBatchId{micro_batch}, begin * kUs, end * kUs, StageId{stage}};
}

// Two stages, two micro-batches, 1F1B; times in microseconds from `at`.
TracedStep two_stages(std::int64_t number, Nanoseconds at) {
  StepSpans spans{.step = number, .begin = at * kUs, .end = (at + 200) * kUs};
  spans.slots = {
      {ReplicaId{0},
       DeviceId{0},
       {StageId{0}},
       {span(Phase::kForward, 0, 0, at + 10, at + 30), span(Phase::kSend, 0, 0, at + 30, at + 34),
        span(Phase::kForward, 0, 1, at + 34, at + 54), span(Phase::kSend, 0, 1, at + 54, at + 54),
        span(Phase::kReceiveWait, 0, 0, at + 54, at + 90), span(Phase::kBackward, 0, 0, at + 90, at + 120),
        span(Phase::kBackward, 0, 1, at + 140, at + 170), span(Phase::kOptimizer, -1, -1, at + 180, at + 190)}},
      {ReplicaId{0},
       DeviceId{1},
       {StageId{1}},
       {span(Phase::kForward, 1, 0, at + 34, at + 60), span(Phase::kLoss, 1, 0, at + 56, at + 60),
        span(Phase::kBackward, 1, 0, at + 60, at + 90), span(Phase::kForward, 1, 1, at + 90, at + 110),
        span(Phase::kBackward, 1, 1, at + 110, at + 140)}}};
  spans.process = {span(Phase::kLoadWait, -1, -1, at, at + 8)};
  spans.buckets = {{StageId{1}, 0, (at + 125) * kUs, (at + 130) * kUs, (at + 150) * kUs},
                   {StageId{1}, 1, (at + 140) * kUs, (at + 140) * kUs, (at + 175) * kUs},
                   {StageId{0}, 0, (at + 165) * kUs, (at + 170) * kUs, (at + 178) * kUs}};
  return {std::move(spans),
          {{{ReplicaId{0}, DeviceId{0}}, "cpu:0"}, {{ReplicaId{0}, DeviceId{1}}, "cpu:1"}},
          {{"samples/s of the run", 320.5}}};
}

json parsed(const TraceProcess& process, const std::vector<TracedStep>& steps) {
  return json::parse(trace_text(process, steps));
}

std::vector<json> events_of(const json& trace, const std::string& ph) {
  std::vector<json> events;
  for (const json& event : trace.at("traceEvents"))
    if (event.at("ph") == ph) events.push_back(event);
  return events;
}

// Perfetto's rule: two bars of a row are apart, or one is within the other. It reads whole nanoseconds: an end that is
// the next one's begin may differ from it in the last bit of the sum of ts and dur.
void expect_bars_nest(const json& trace) {
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> rows;
  for (const json& bar : events_of(trace, "X"))
    rows[{bar.at("pid"), bar.at("tid")}].emplace_back(bar.at("ts"), double(bar.at("ts")) + double(bar.at("dur")));
  for (const auto& [row, bars] : rows) {
    for (const auto& a : bars) {
      for (const auto& b : bars) {
        const bool is_cut = a.first < b.first && b.first < a.second - 1e-6 && a.second < b.second;
        EXPECT_FALSE(is_cut) << row.first << " " << row.second << ": " << a.first << ".." << a.second << " and "
                             << b.first;
      }
    }
  }
}

TEST(Trace, BarsNestAndRowsHaveNames) {
  const json trace = parsed({.pid = 4711, .backend = "gloo"}, {two_stages(7, 1000), two_stages(8, 1200)});
  expect_bars_nest(trace);
  std::set<std::pair<int, int>> named;
  std::set<std::string> names;
  for (const json& event : events_of(trace, "M")) {
    if (event.at("name") != "thread_name") continue;
    named.emplace(event.at("pid"), event.at("tid"));
    names.insert(event.at("args").at("name"));
  }
  for (const json& bar : events_of(trace, "X")) EXPECT_TRUE(named.contains({bar.at("pid"), bar.at("tid")})) << bar;
  for (const char* name :
       {"training loop", "stage 0", "stage 1", "stage 0 copies", "stage 0 waits", "stage 1 all-reduce"})
    EXPECT_TRUE(names.contains(name)) << name;
}

TEST(Trace, ArrowsLeadFromEachStagesEndToTheNextOnesBeginning) {
  const json trace = parsed({.pid = 4711}, {two_stages(7, 1000)});
  std::map<int, json> starts;
  for (const json& start : events_of(trace, "s")) EXPECT_TRUE(starts.emplace(start.at("id"), start).second);
  const auto ends = events_of(trace, "f");
  ASSERT_EQ(ends.size(), 4);  // two activations, two gradients
  EXPECT_EQ(starts.size(), 4);
  std::multiset<std::string> names;
  const auto bars = events_of(trace, "X");
  for (const json& end : ends) {
    const json& start = starts.at(end.at("id"));
    names.insert(end.at("name"));
    EXPECT_EQ(end.at("bp"), "e");
    EXPECT_EQ(start.at("name"), end.at("name"));
    EXPECT_NE(start.at("pid"), end.at("pid"));
    EXPECT_LE(double(start.at("ts")), double(end.at("ts")));
    for (const json& at : {start, end}) {  // within a bar of their row
      EXPECT_TRUE(std::ranges::any_of(bars, [&](const json& bar) {
        return bar.at("pid") == at.at("pid") && bar.at("tid") == at.at("tid") && bar.at("ts") <= at.at("ts") &&
               double(at.at("ts")) < double(bar.at("ts")) + double(bar.at("dur"));
      })) << at;
    }
  }
  EXPECT_THAT(names,
              testing::UnorderedElementsAre("activation mb 0", "activation mb 1", "gradient mb 0", "gradient mb 1"));
}

// A number is one arrow's in the whole file, and no arrow leads to another replica.
TEST(Trace, ArrowsOfReplicasAndStepsAreTheirOwn) {
  std::vector<TracedStep> steps{two_stages(7, 1000), two_stages(8, 1300)};
  for (TracedStep& step : steps) {
    for (int device = 0; device < 2; ++device) {
      StepSpans::Slot other = step.spans.slots[device];
      other.replica = ReplicaId{1};
      step.spans.slots.push_back(std::move(other));
    }
  }
  const json trace = parsed({.pid = 4711}, steps);
  std::map<int, std::string> groups;
  for (const json& event : events_of(trace, "M")) {
    if (event.at("name") == "process_name") groups[event.at("pid")] = event.at("args").at("name");
  }
  const auto is_of_replica_1 = [&](const json& at) {
    return groups.at(at.at("pid")).find("replica 1") != std::string::npos;
  };
  std::map<int, json> starts;
  for (const json& start : events_of(trace, "s")) EXPECT_TRUE(starts.emplace(start.at("id"), start).second) << start;
  const auto ends = events_of(trace, "f");
  EXPECT_EQ(ends.size(), 2 * 2 * 4);
  EXPECT_EQ(std::ranges::count_if(ends, is_of_replica_1), 2 * 4);
  for (const json& end : ends) EXPECT_EQ(is_of_replica_1(starts.at(end.at("id"))), is_of_replica_1(end)) << end;
}

TEST(Trace, EveryPieceOfWorkIsBegunByACallOnTheHost) {
  const json trace = parsed({.pid = 4711, .backend = "gloo"}, {two_stages(7, 1000)});
  std::map<int, int> calls, pieces;
  for (const json& bar : events_of(trace, "X")) {
    const json& args = bar.at("args");
    if (!args.contains("correlation")) continue;
    (bar.at("cat") == "cuda_runtime" ? calls : pieces)[args.at("correlation")]++;
    if (bar.at("cat") == "cuda_runtime") continue;
    EXPECT_GT(int(args.at("stream")), 0);
    EXPECT_EQ(args.at("step"), 7);
    EXPECT_GE(double(bar.at("dur")), 2.0) << "readers round to microseconds";
  }
  EXPECT_EQ(calls, pieces);
  EXPECT_FALSE(pieces.empty());
}

// By HolisticTraceAnalysis' rules for names, over whole microseconds: what it must read, and what the breakdown says.
TEST(Trace, NamesTellComputingFromSumsAndTimesAddUpToTheBreakdown) {
  const TracedStep step = two_stages(7, 1000);
  const json trace = parsed({.pid = 4711, .backend = "gloo"}, {step});
  const std::regex is_sum("^nccl.*Kernel"), is_copy("^(Memcpy|Memset)");
  std::map<int, std::set<int>> computing, summing;  // by device, in the order of slots: microseconds
  for (const json& bar : events_of(trace, "X")) {
    if (!bar.at("args").contains("stream")) continue;
    const std::string name = bar.at("name");
    auto& into = std::regex_search(name, is_sum) ? summing : computing;
    if (std::regex_search(name, is_copy)) continue;
    for (int us = bar.at("ts"); us < double(bar.at("ts")) + double(bar.at("dur")); ++us)
      into[bar.at("args").at("device")].insert(us);
  }
  const StepBreakdown breakdown = break_down(step.spans);
  for (const SlotBreakdown& slot : breakdown.slots) {
    const Nanoseconds busy = slot.forward() + slot.backward() + slot[Part::kOptimizer];
    EXPECT_EQ(static_cast<Nanoseconds>(computing[index(slot.device)].size()) * kUs, busy) << index(slot.device);
  }
  EXPECT_EQ(summing[1].size(), 50);  // 125 .. 175
  EXPECT_EQ(summing[0].size(), 13);  // 165 .. 178
}

TEST(Trace, TimesAreRankZeroSAndTheRankIsFoundLineByLine) {
  const TracedStep step = two_stages(7, 1000);
  const TraceProcess process{.rank = 3,
                             .processes = 4,
                             .host = "a\"b\\\n\xff<script>",
                             .pid = 4711,
                             .backend = "gloo",
                             .clock = TraceClock{.offset = 50'000'123, .error = 77},
                             .base = -49'000'000,
                             .base_epoch = 42};
  const std::string text = trace_text(process, std::vector{step});
  std::smatch match;
  ASSERT_TRUE(std::regex_search(text, match, std::regex("\"rank\":\\s+(\\d+)")));
  EXPECT_EQ(match[1], "3");
  const json trace = json::parse(text);
  EXPECT_EQ(trace.at("distributedInfo").at("world_size"), 4);
  EXPECT_EQ(trace.at("sluice").at("clock").at("offset_ns"), 50'000'123);
  EXPECT_EQ(trace.at("sluice").at("clock").at("error_ns"), 77);
  EXPECT_EQ(trace.at("baseTimeNanoseconds"), 42);
  for (const json& bar : events_of(trace, "X")) {
    if (bar.at("name") != "ProfilerStep#7") continue;
    EXPECT_NEAR(double(bar.at("ts")), (1000 * kUs - 50'000'123 + 49'000'000) / 1000.0, 1e-9);
    EXPECT_EQ(double(bar.at("dur")), 200.0);
  }
}

TEST(Trace, CountersStandAtTheEndsOfSteps) {
  const auto counters = events_of(parsed({.pid = 4711}, {two_stages(7, 1000)}), "C");
  ASSERT_EQ(counters.size(), 1);
  EXPECT_EQ(counters[0].at("name"), "samples/s of the run");
  EXPECT_EQ(counters[0].at("args").at("value"), 320.5);
  EXPECT_EQ(double(counters[0].at("ts")), 1200.0);
}

// {group, row} of each bar of a stage's work, as a reader names them.
std::set<std::pair<std::string, std::string>> rows_of_work(const json& trace) {
  std::map<int, std::string> groups;
  std::map<std::pair<int, int>, std::string> rows;
  for (const json& event : events_of(trace, "M")) {
    if (event.at("name") == "process_name") groups[event.at("pid")] = event.at("args").at("name");
    if (event.at("name") == "thread_name") rows[{event.at("pid"), event.at("tid")}] = event.at("args").at("name");
  }
  std::set<std::pair<std::string, std::string>> found;
  for (const json& bar : events_of(trace, "X")) {
    if (bar.at("args").contains("stage")) found.emplace(groups.at(bar.at("pid")), rows[{bar.at("pid"), bar.at("tid")}]);
  }
  return found;
}

TracedStep one_stage(std::int64_t number, Nanoseconds at, int stage, const std::string& device) {
  StepSpans spans{.step = number, .begin = at * kUs, .end = (at + 100) * kUs};
  spans.slots = {{ReplicaId{0}, DeviceId{0}, {StageId{stage}}, {span(Phase::kForward, stage, 0, at + 10, at + 30)}}};
  return {std::move(spans), {{{ReplicaId{0}, DeviceId{0}}, device}}};
}

// Freezing cuts the model anew: another stage may come to a slot, and another device.
TEST(Trace, AnotherPlanHasItsOwnNames) {
  const json trace = parsed(
      {.pid = 4711}, {one_stage(7, 1000, 0, "cpu:0"), one_stage(8, 1100, 1, "cpu:0"), one_stage(9, 1200, 0, "cpu:3")});
  EXPECT_THAT(rows_of_work(trace), testing::UnorderedElementsAre(std::pair("rank 0 replica 0: cpu:0", "stage 0"),
                                                                 std::pair("rank 0 replica 0: cpu:0", "stage 1"),
                                                                 std::pair("rank 0 replica 0: cpu:3", "stage 0")));
}

// The first process of a container is process 1, and a small number is no rarity there.
TEST(Trace, NoNumberOfAProcessIsThatOfASlot) {
  for (const int pid : {1, 2, 3, 10, 3010, 4'194'304}) {
    const json trace = parsed({.host = "a", .pid = pid, .backend = "gloo"}, {two_stages(7, 1000)});
    expect_bars_nest(trace);
    std::map<int, std::set<std::string>> names;  // of groups
    std::map<std::pair<int, int>, std::set<std::string>> rows;
    for (const json& event : events_of(trace, "M")) {
      if (event.at("name") == "process_name") names[event.at("pid")].insert(event.at("args").at("name"));
      if (event.at("name") == "thread_name")
        rows[{event.at("pid"), event.at("tid")}].insert(event.at("args").at("name"));
    }
    EXPECT_EQ(names.size(), 3) << pid;
    EXPECT_THAT(names[pid], testing::ElementsAre("process of rank 0 on a"));
    for (const auto& [row, of_row] : rows) EXPECT_EQ(of_row.size(), 1) << pid << " " << *of_row.begin();
  }
}

TEST(Trace, WorkersThatTakeTurnsHaveRowsOfTheirOwn) {
  TracedStep step{{.step = 7, .begin = 0, .end = 500 * kUs}, {{{ReplicaId{0}, DeviceId{0}}, "cpu:0"}}};
  auto& slot = step.spans.slots.emplace_back(StepSpans::Slot{ReplicaId{0}, DeviceId{0}, {StageId{0}, StageId{1}}, {}});
  for (const int begin : {0, 100, 200}) {
    const int worker = begin == 100 ? 1 : 0;
    step.spans.turns.push_back({worker, begin * kUs, (begin + 90) * kUs});
    for (const int stage : {0, 1})
      slot.spans.push_back(span(Phase::kForward, stage, 0, begin + 10 + 20 * stage, begin + 20 + 20 * stage));
  }
  const json trace = parsed({.pid = 4711}, {step});
  EXPECT_THAT(rows_of_work(trace),
              testing::UnorderedElementsAre(std::pair("rank 0 worker 0 replica 0: cpu:0", "stage 0"),
                                            std::pair("rank 0 worker 0 replica 0: cpu:0", "stage 1"),
                                            std::pair("rank 0 worker 1 replica 0: cpu:0", "stage 0"),
                                            std::pair("rank 0 worker 1 replica 0: cpu:0", "stage 1")));
  // Of each turn an activation, which leads to its own next stage.
  std::map<int, double> starts;
  for (const json& start : events_of(trace, "s")) starts[start.at("id")] = start.at("ts");
  const auto ends = events_of(trace, "f");
  EXPECT_EQ(ends.size(), 3);
  for (const json& end : ends) EXPECT_NEAR(double(end.at("ts")) - starts.at(end.at("id")), 10, 0.01);
}

TEST(Trace, WhatTheLoopDoesBetweenStepsStandsInItsRow) {
  TracedStep step = two_stages(7, 1000);  // to 1200
  step.outside = {span(Phase::kEvaluation, -1, -1, 1210, 1250), span(Phase::kCheckpoint, -1, -1, 1250, 1260)};
  const auto row_of = [](const json& trace, const std::string& name) {
    for (const json& bar : events_of(trace, "X")) {
      if (bar.at("name") == name) return std::pair(int(bar.at("pid")), int(bar.at("tid")));
    }
    return std::pair(-1, -1);
  };
  const json trace = parsed({.pid = 4711}, {step, two_stages(8, 1300)});
  expect_bars_nest(trace);
  EXPECT_EQ(row_of(trace, "evaluation"), row_of(trace, "ProfilerStep#7"));
  EXPECT_EQ(row_of(trace, "checkpoint"), row_of(trace, "ProfilerStep#7"));
  // A server's steps do not wait for its loop.
  const json of_server = parsed({.pid = 4711}, {step, two_stages(8, 1220)});
  expect_bars_nest(of_server);
  EXPECT_NE(row_of(of_server, "evaluation"), row_of(of_server, "ProfilerStep#7"));
}

TEST(Trace, WhatIsMissingIsSaid) {
  TracedStep step = two_stages(7, 1000);
  step.spans.dropped = 5;
  const json trace = parsed({.pid = 4711, .clock = std::nullopt, .knows_waits = false}, {step, two_stages(8, 1300)});
  EXPECT_EQ(trace.at("sluice").at("spans_dropped"), 5);
  EXPECT_TRUE(trace.at("sluice").at("clock").is_null());
  for (const json& bar : events_of(trace, "X")) {
    if (bar.at("name") == "ProfilerStep#7") {
      EXPECT_EQ(bar.at("args").at("spans_dropped"), 5);
    } else {
      EXPECT_FALSE(bar.at("args").contains("spans_dropped"));
    }
    EXPECT_FALSE(bar.at("args").contains("waited_us"));
  }
  const json whole = parsed({.pid = 4711}, {two_stages(7, 1000)});
  EXPECT_EQ(whole.at("sluice").at("spans_dropped"), 0);
  EXPECT_TRUE(
      std::ranges::any_of(events_of(whole, "X"), [](const json& bar) { return bar.at("args").contains("waited_us"); }));
}

// Spans of a thread nest as calls do; buckets overlap as they like, and so does what a GPU runs beside.
TEST(Trace, BarsNestWhateverRan) {
  std::mt19937 random(5);
  const auto between = [&](int least, int most) { return std::uniform_int_distribution(least, most)(random); };
  for (int round = 0; round < 200; ++round) {
    TracedStep step{{.step = round, .begin = 0, .end = 1'000'000}, {}};
    const int stages = between(1, 4), devices = between(1, stages);
    for (int device = 0; device < devices; ++device) {
      StepSpans::Slot& slot = step.spans.slots.emplace_back(StepSpans::Slot{ReplicaId{0}, DeviceId{device}, {}, {}});
      for (int stage = device; stage < stages; stage += devices) slot.stages.push_back(StageId{stage});
      Nanoseconds at = 0;
      for (int i = 0; i < 30; ++i) {
        const Nanoseconds begin = at + between(0, 500), end = begin + between(0, 9000);
        const StageId stage = slot.stages[between(0, static_cast<int>(slot.stages.size()) - 1)];
        slot.spans.push_back({static_cast<Phase>(between(1, 10)), MicroBatchId{between(0, 7)}, begin, end, stage});
        at = end;
      }
      for (int i = between(0, 8); i > 0; --i) {
        Span span{between(0, 1) == 0 ? Phase::kReceive : Phase::kAllReduce, MicroBatchId{i}, between(0, 200'000), 0,
                  slot.stages.front()};
        span.end = span.begin + between(0, 40'000);
        span.is_beside = true;
        slot.spans.push_back(span);
      }
    }
    for (int i = between(0, 40); i > 0; --i) {
      const Nanoseconds begin = between(0, 300'000);
      step.spans.buckets.push_back({StageId{between(0, stages - 1)}, i, begin, begin, begin + between(0, 40'000)});
    }
    std::ranges::sort(step.spans.buckets, {}, &BucketSpan::begin);
    expect_bars_nest(parsed({.pid = 4711}, {step}));
  }
}

}  // namespace
}  // namespace sluice::profiler
