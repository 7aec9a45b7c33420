// The step of `report --html`: traces of any kind are read within bounds, and the plan's schedule is simulated from the
// records.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>

#include "core/concat.h"
#include "report/html/gantt.h"
#include "report/html/trace_reader.h"
#include "support/files.h"

namespace sluice::report {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;

std::string event_text(int stage, int micro_batch, double begin_us, int step) {
  return concat(R"({"ph":"X","cat":"kernel","name":"f","pid":)", stage + 1, R"(,"tid":7,"ts":)", begin_us,
                R"(,"dur":50,"args":{"phase":"forward","stage":)", stage, R"(,"micro_batch":)", micro_batch,
                R"(,"replica":0,"nested":{"stage":9},"step":)", step, "}}");
}

class GanttTest : public testing::Test {
 protected:
  std::filesystem::path packed(const std::string& text, const char* name = "trace.rank0.json.gz") {
    const auto file = folder_.path() / name;
    gzFile out = gzopen(file.c_str(), "wb");
    gzwrite(out, text.data(), static_cast<unsigned>(text.size()));
    gzclose(out);
    return file;
  }

  test::TempDir folder_;
};

std::string trace_text() {
  return concat(
      R"({"sluice":{"rank": 0},"other":[{"ph":"X","args":{"phase":"no"}}],"traceEvents":[{"ph":"M","args":{"phase":"x"}},)",
      event_text(0, 0, 1000, 10), ",", event_text(1, 0, 1060, 10), ",", event_text(0, 1, 2000, 11), ",",
      event_text(1, 1, 2060, 11), R"(],"end":1})");
}

TEST_F(GanttTest, BarsOfASecondStepWithTheirRows) {
  const Trace trace = read_trace(packed(trace_text()));
  EXPECT_EQ(trace.problem, "");
  ASSERT_EQ(trace.steps.size(), 2U);
  EXPECT_EQ(trace.steps.at(11)[1].stage, 1);
  RunLog log;
  log.dir = folder_.path();
  const Json measured = gantt_of(log)["measured"];
  EXPECT_EQ(measured["title"], "Measured: step 11");
  EXPECT_EQ(measured["length_ms"], 0.11);
  EXPECT_EQ(measured["rows"][1],
            Json({{"name", "replica 0, stage 1"}, {"boxes", Json::array({{0.06, 0.05, "forward", "forward 1"}})}}));
}

TEST_F(GanttTest, DamagedTracesAreASentence) {
  const auto file = packed(trace_text());
  const std::string whole = trace_text();
  for (const std::string& text : {whole.substr(0, 400), std::string("[]"), std::string(), std::string(100'000, '['),
                                  std::string("{\"traceEvents\":5}"), std::string("\xff\xfe")})
    EXPECT_NE(read_trace(packed(text)).problem, "") << text.substr(0, 40);
  packed(whole);
  std::filesystem::resize_file(file, std::filesystem::file_size(file) / 2);
  EXPECT_THAT(read_trace(file).problem, HasSubstr("is damaged or was cut"));
  EXPECT_THAT(read_trace(packed(whole), 300).problem, HasSubstr("longer than"));
  EXPECT_THAT(read_trace(folder_.path() / "none").problem, HasSubstr("cannot be opened"));
}

TEST_F(GanttTest, LongTracesAreBounded) {
  std::string text = R"({"traceEvents":[)";
  for (int i = 0; i < 50'000; ++i) text += event_text(0, i, 100.0 * i, 1) + ",";
  text += event_text(0, 0, 0, 2) + "]}";
  const Trace trace = read_trace(packed(text));
  EXPECT_LE(trace.steps.at(1).size(), 40'000U);
  const Json picture = measured_gantt({{"", trace.steps.at(1)}}, 1);
  EXPECT_LE(picture["rows"][0]["boxes"].size(), 4000U);
}

TEST_F(GanttTest, WorkersThatTakeTurnsOnADeviceAreToldApart) {
  const auto bar = [](int worker, std::int64_t pid) {
    return TraceBar{.length_us = 50, .phase = "forward", .stage = 0, .replica = 0, .worker = worker, .pid = pid};
  };
  const Json rows = measured_gantt({{"", {bar(0, 5), bar(1, 6)}}}, 1)["rows"];
  EXPECT_EQ(rows[0]["name"], "worker 0, replica 0, stage 0");
  EXPECT_EQ(rows[1]["name"], "worker 1, replica 0, stage 0");
}

// What goes on outside of all devices has no row here, and is no step.
TEST_F(GanttTest, BarsOfNoStepAreLeftOut) {
  const Trace trace = read_trace(packed(concat(
      R"({"traceEvents":[{"ph":"X","ts":1,"dur":2,"args":{"phase":"load_wait"}},)", event_text(0, 0, 1000, 10), "]}")));
  EXPECT_EQ(trace.steps.size(), 1U);
}

RunLog log_of(const char* plan) {
  RunLog log;
  log.plan = Json::parse(plan);
  log.means = {{"forward_ms", 4.0}, {"backward_ms", 8.0}};
  return log;
}

TEST(SimulatedGanttTest, OneForwardOneBackward) {
  const Json gantt =
      simulated_gantt(log_of(R"({"stages":2,"virtual":1,"chunks":4,"schedule":"1f1b","partition":[2,1]})"));
  // Of p stages and m micro-batches that take 1 and 2: (m + p - 1) * 3.
  EXPECT_EQ(gantt["length_ms"], 15.0);
  EXPECT_THAT(gantt["title"].get<std::string>(), HasSubstr("1f1b, 2 devices, 4 micro-batches, bubble 20.0 %"));
  EXPECT_EQ(gantt["rows"][0]["boxes"].size(), 8U);
}

// The times of an earlier plan's slots are none of the last one's.
TEST(SimulatedGanttTest, AfterAChangeWithTheTimesOfTheLastPlan) {
  RunLog log = log_of(R"({"stages":2,"virtual":1,"chunks":4,"schedule":"1f1b","partition":[2,1]})");
  const auto slot = [](int replica, int stage, int steps, double forward) {
    return Json{{"replica", replica},
                {"stage", stage},
                {"steps", steps},
                {"forward_ms", forward},
                {"backward_ms", 2 * forward}};
  };
  log.summary["breakdown"] = {slot(0, 0, 100, 40), slot(0, 1, 10, 4)};
  log.plan_since = 90;
  EXPECT_TRUE(simulated_gantt(log).is_null()) << "older records do not tell the last plan's times";
  log.summary["breakdown_of_last_plan"] = {slot(0, 0, 10, 4), slot(0, 1, 10, 4)};
  EXPECT_EQ(simulated_gantt(log)["length_ms"], 15.0);
  log.plan_since = 0;
  log.summary.erase("breakdown_of_last_plan");
  log.summary["breakdown"] = {slot(0, 0, 9, 4), slot(1, 0, 1, 14), slot(0, 1, 10, 5)};
  EXPECT_EQ(simulated_gantt(log)["length_ms"], 5 * 3 * 5 / 4.0) << "each place as often as it ran";
}

TEST_F(GanttTest, NoSimulationOfAnotherPlanThanTheTracedStepHad) {
  RunLog log;
  log.dir = folder_.path();
  log.plan = Json::parse(R"({"stages":2,"virtual":1,"chunks":4,"schedule":"1f1b","partition":[2,1]})");
  log.summary["breakdown_of_last_plan"] =
      Json::parse(R"([{"replica":0,"stage":0,"steps":1,"forward_ms":1,"backward_ms":2},
      {"replica":0,"stage":1,"steps":1,"forward_ms":1,"backward_ms":2}])");
  packed(trace_text());  // of steps 10 and 11
  log.plan_since = 10;
  EXPECT_FALSE(gantt_of(log)["simulated"].is_null());
  log.plan_since = 11;
  EXPECT_TRUE(gantt_of(log)["simulated"].is_null());
  EXPECT_THAT(gantt_of(log)["note"].get<std::string>(), HasSubstr("the last time after step 11"));
}

TEST_F(GanttTest, TracesThatShareNoStep) {
  packed(trace_text());
  packed(concat(R"({"traceEvents":[)", event_text(0, 0, 1000, 50), "]}"), "trace.rank1.json.gz");
  RunLog log;
  log.dir = folder_.path();
  const Json gantt = gantt_of(log);
  EXPECT_EQ(gantt["measured"]["title"], "Measured: step 10");
  EXPECT_THAT(gantt["note"].get<std::string>(), HasSubstr("share no step; 1 of them are omitted"));
}

TEST(SimulatedGanttTest, PlansOfNobody) {
  for (const char* plan : {"{}", R"({"stages":1,"chunks":1,"schedule":"1f1b","partition":[1]})",
                           R"({"stages":1000000000,"chunks":4,"schedule":"1f1b","partition":[1]})",
                           R"({"stages":2,"chunks":4,"schedule":"<x>","partition":[1,1]})",
                           R"({"stages":2,"chunks":4,"schedule":"order","partition":[1,1]})",
                           R"({"stages":2,"chunks":4,"virtual":3,"schedule":"1f1b","partition":[1,1]})",
                           R"({"stages":2,"chunks":4,"virtual":0,"schedule":"1f1b","partition":[]})",
                           R"({"stages":2,"chunks":0,"schedule":"1f1b","partition":["a",-1]})"})
    EXPECT_TRUE(simulated_gantt(log_of(plan)).is_null()) << plan;
}

}  // namespace
}  // namespace sluice::report
