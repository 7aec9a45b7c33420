// What every process, kernel and operator says of its time: from the records to the report.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <cmath>
#include <limits>

#include "core/concat.h"
#include "report/call_table.h"
#include "report/rank_spread.h"
#include "report/run_report.h"
#include "support/files.h"

namespace sluice::report {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;
using testing::Not;

Json slot(int stage, double forward, int replica = 0) {
  return {{"replica", replica}, {"stage", stage},      {"load_ms", 0.5}, {"forward_ms", forward},
          {"backward_ms", 1.0}, {"optimizer_ms", 0.5}, {"idle_ms", 7.0}};
}

TEST(RankSpread, ComparesTheWorkOfEachStageOverTheProcesses) {
  const Json ranks = {{{"rank", 0}, {"host", "a"}, {"places", {slot(0, 2), slot(1, 8)}}},
                      "no rank",
                      {{"rank", 2}, {"places", "none"}},
                      {{"rank", 1}, {"host", "b"}, {"places", {slot(0, 3), slot(0, 7, 1), slot(1, 8)}}}};
  const Json spread = rank_spread(ranks);
  ASSERT_EQ(spread.size(), 2U);
  EXPECT_EQ(spread[0], Json({{"stage", 0},
                             {"processes", 2},
                             {"mean_ms", 5.5},
                             {"slowest_ms", 7.0},
                             {"slowest_rank", 1},
                             {"slowest_host", "b"},
                             {"spread_ms", 3.0}}));
  EXPECT_EQ(spread[1]["spread_ms"], 0.0);
  EXPECT_THAT(rank_spread_text(spread),
              HasSubstr("stage 0                         5.50     7.00    3.00           1 b\n"));
}

// A replica of a process that ran 1 step in 100 counts as one in a hundred.
TEST(RankSpread, ASlotCountsAsOftenAsItRan) {
  Json often = slot(0, 2), seldom = slot(0, 102, 1);
  often["steps"] = 99;
  seldom["steps"] = 1;
  const Json ranks = {{{"rank", 0}, {"places", {often, seldom}}}, {{"rank", 1}, {"places", {slot(0, 4)}}}};
  EXPECT_EQ(rank_spread(ranks)[0]["slowest_rank"], 1);
  EXPECT_NEAR(rank_spread(ranks)[0]["spread_ms"], 1, 1e-9);
}

TEST(RankSpread, WhatIsUnknownIsLeftOut) {
  Json unknown = slot(0, 2);
  unknown["backward_ms"] = nullptr;
  Json infinite = slot(0, 2);
  infinite["load_ms"] = "Infinity";
  const Json ranks = {{{"rank", 0}, {"places", {slot(0, 2)}}}, {{"rank", 1}, {"places", {unknown, infinite}}}};
  EXPECT_TRUE(rank_spread(ranks).is_null()) << "one process alone has no spread";
  for (const Json& none : {Json(nullptr), Json(3), Json::array(), Json::object()})
    EXPECT_TRUE(rank_spread(none).is_null());
  EXPECT_EQ(rank_spread_text(nullptr), "");
}

TEST(KernelTable, ShareAndMeansOfAStep) {
  const Json table =
      kernel_table({{"event", "kernels"},
                    {"steps", 4},
                    {"rows",
                     {{{"phase", "forward"}, {"layer", "fc"}, {"kernel", "gemm"}, {"calls", 8}, {"time_ms", 6.0}},
                      {{"phase", "optimizer"}, {"layer", nullptr}, {"kernel", "axpy"}, {"calls", 4}, {"time_ms", 1.0}},
                      {{"phase", "loss"}, {"kernel", "broken"}, {"calls", 4}, {"time_ms", "NaN"}},
                      17}},
                    {"rest_ms", 1.0}});
  EXPECT_EQ(table["kernel_ms"], 2.0);
  EXPECT_EQ(table["left_out_ms"], 0.25);
  ASSERT_EQ(table["rows"].size(), 2U);
  EXPECT_EQ(table["rows"][0], Json({{"phase", "forward"},
                                    {"layer", "fc"},
                                    {"kernel", "gemm"},
                                    {"calls", 2.0},
                                    {"time_ms", 1.5},
                                    {"share", 0.75}}));
  EXPECT_EQ(table["rows"][1]["share"], 0.125);
  EXPECT_THAT(kernel_table_text(table), HasSubstr("   75.0      1.500    2.0  forward    fc     gemm\n"));
}

TEST(RunOperators, RatesAreOfTheirOwnTime) {
  const Json table = run_operators({{"steps", 2},
                                    {"rows",
                                     {{{"layer", "fc"},
                                       {"pass", "backward"},
                                       {"operator", "aten::mm"},
                                       {"calls", 6},
                                       {"self_ms", 4.0},
                                       {"flops", 8e6},
                                       {"bytes", 1e6}},
                                      {{"layer", nullptr},
                                       {"pass", "forward"},
                                       {"operator", "aten::view"},
                                       {"calls", 1},
                                       {"self_ms", 0.0},
                                       {"flops", 0.0},
                                       {"bytes", 16.0}}}},
                                    {"rest_ms", 4.0}});
  EXPECT_EQ(table["operator_ms"], 4.0);
  EXPECT_EQ(table["left_out_ms"], 2.0);
  EXPECT_EQ(table["rows"][0], Json({{"pass", "backward"},
                                    {"layer", "fc"},
                                    {"operator", "aten::mm"},
                                    {"calls", 3.0},
                                    {"self_ms", 2.0},
                                    {"share", 0.5},
                                    {"flops_per_s", 2e9},
                                    {"bytes_per_s", 2.5e8}}));
  EXPECT_TRUE(table["rows"][1]["flops_per_s"].is_null());
  EXPECT_TRUE(table["rows"][1]["bytes_per_s"].is_null()) << "in no time";
  EXPECT_THAT(run_operators_text(table),
              HasSubstr("   50.0           2.000    3.0     2.00  0.25  backward  fc     aten::mm"));
  EXPECT_TRUE(run_operators(nullptr).is_null());
  EXPECT_EQ(run_operators_text(nullptr), "");
}

TEST(KernelTable, OfManyTheLongestStay) {
  Json line{{"steps", 1}, {"rows", Json::array()}};
  for (int i = 100; i > 0; --i)
    line["rows"].push_back({{"phase", "forward"}, {"kernel", concat("k", i)}, {"calls", 1}, {"time_ms", i}});
  const Json table = kernel_table(line);
  EXPECT_EQ(table["kernel_ms"], 5050.0);
  EXPECT_EQ(table["rows"].size(), 30U);
  EXPECT_EQ(table["rows"][29]["kernel"], "k71");
  EXPECT_EQ(table["left_out_ms"], 70 * 71 / 2.0);
}

TEST(KernelTable, NothingWhereThereIsNone) {
  for (const Json& none : {Json(nullptr), Json(3), Json({{"steps", 3}}), Json({{"steps", 0}, {"rows", {1}}}),
                           Json({{"steps", 3}, {"rows", {1, "x", nullptr}}})})
    EXPECT_TRUE(kernel_table(none).is_null()) << none;
  EXPECT_EQ(kernel_table_text(nullptr), "");
}

// A run that went on after its end has other ranks and kernels than the ones that it told of.
TEST(RunTables, AreOfTheLastStart) {
  const test::TempDir folder;
  const std::string lines =
      concat(R"({"event":"plan","time_s":0})", "\n", R"({"event":"step","step":1,"time_s":1,"loss":1.0})", "\n",
             Json({{"event", "ranks"},
                   {"ranks", {{{"rank", 0}, {"places", {slot(0, 1)}}}, {{"rank", 1}, {"places", {slot(0, 2)}}}}}})
                 .dump(),
             "\n", R"({"event":"kernels","steps":1,"rows":[{"phase":"forward","kernel":"k","calls":1,"time_ms":1.0}]})",
             "\n", R"({"event":"summary","outcome":"done"})", "\n");
  test::spill(folder.path() / "metrics.jsonl", lines);
  const RunReport run = read_report(folder.path());
  EXPECT_EQ(run.json()["rank_spread"][0]["slowest_rank"], 1);
  EXPECT_THAT(run.text(), HasSubstr("over the processes, ms a step"));
  EXPECT_THAT(run.text(), HasSubstr("kernels of the GPUs, 1.00 ms a step"));
  test::spill(folder.path() / "metrics.jsonl", lines + R"({"event":"resume","step":1})" + "\n");
  const RunReport later = read_report(folder.path());
  EXPECT_TRUE(later.json()["rank_spread"].is_null());
  EXPECT_TRUE(later.json()["kernels"].is_null());
  EXPECT_THAT(later.text(), Not(HasSubstr("over the processes")));
}

}  // namespace
}  // namespace sluice::report
