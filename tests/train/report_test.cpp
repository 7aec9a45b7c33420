#include "train/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/concat.h"
#include "train/records/support.h"
#include "train/time_table.h"

namespace sluice::train {
namespace {

using testing::HasSubstr;

TEST(TimeTable, ColumnsAreDisjointAndAddUpToTheStep) {
  const Numbers ms{{"load_ms", 1},
                   {"forward_ms", 10},
                   {"backward_ms", 20},
                   {"transfer_ms", 2},
                   {"skew_ms", 4},
                   {"optimizer_ms", 3},
                   {"allreduce_exposed_ms", 9},
                   {"bubble_fill_ms", 1},
                   {"bubble_steady_ms", 2},
                   {"bubble_drain_ms", 3},
                   {"idle_ms", 10},
                   {"step_ms", 55}};
  Numbers other = ms;
  other["forward_ms"] = 12;
  other["idle_ms"] = 8;
  EXPECT_EQ(
      time_table(std::vector{PlaceTimes{0, 0, ms}, PlaceTimes{0, 1, other}}, {}, 7),
      R"(where the time went, mean of 7 steps (ms; allreduce: exposed; skew: waiting for the slowest to get there):
                   load  forward  backward  transfer  allreduce  skew  optimizer  bubble  other   step    busy
replica 0 stage 0  1.00    10.00     20.00      2.00       5.00  4.00       3.00    6.00   4.00  55.00  60.0 %
replica 0 stage 1  1.00    12.00     20.00      2.00       5.00  4.00       3.00    6.00   2.00  55.00  63.6 %
mean               1.00    11.00     20.00      2.00       5.00  4.00       3.00    6.00   3.00  55.00  61.8 %)");
}

TEST(TimeTable, WhatIsNotKnownIsADash) {
  EXPECT_THAT(
      time_table({}, {{"step_ms", 2.0}}, 1),
      HasSubstr(
          "\nall stages     -        -         -         -          -     -          -       -      -  2.00     -"));
  EXPECT_THAT(
      time_table({}, {{"allreduce_exposed_ms", 3.0}, {"idle_ms", 1.0}}, 1),
      HasSubstr(
          "\nall stages     -        -         -         -       3.00     -          -       -   1.00     -     -"))
      << "of a version that did not know skew and bubble";
}

std::vector<RunReport> reports_of(const TempDir& dir, const std::vector<std::string>& records) {
  std::vector<RunReport> reports;
  for (std::size_t i = 0; i < records.size(); ++i) {
    const auto run_dir = dir / concat("run", i);
    std::filesystem::create_directory(run_dir);
    spill(run_dir / "metrics.jsonl", records[i]);
    reports.push_back(read_report(run_dir));
  }
  return reports;
}

constexpr auto kSteps =
    R"({"event":"plan","model":"mlp","stages":2,"replicas":1,"processes":2,"schedule":"1f1b","chunks":4,"global_batch":16})"
    "\n"
    R"({"event":"step","step":1,"step_ms":10,"samples_per_s":1600,"load_ms":1,"allreduce_exposed_ms":3,"skew_ms":1,)"
    R"("bubble_fill_ms":0.5,"bubble_steady_ms":0,"bubble_drain_ms":0.25,"device_busy":[0.5,0.75],"mfu":0.125})"
    "\n";

TEST(Comparison, IsARowARunWithTheSpeedUp) {
  const TempDir dir;
  const auto reports =
      reports_of(dir, {kSteps, "",
                       R"({"event":"step","step":1,"step_ms":5,"samples_per_s":3200})"
                       "\n"
                       R"({"event":"summary","outcome":"done","wall_s":2.5,"peak_memory_bytes":{"process":10485760}})"
                       "\n"});
  EXPECT_EQ(
      comparison(reports),
      R"(run  model dev procs stages repl chunks schedule batch steps samples step busy allreduce skew bubble load  MFU memory top-1 wall speed-up
                                                                  /s   ms    %        ms   ms     ms   ms    %    MiB     %    s
run0 mlp     4     2      2    2      4 1f1b        16     1  1600.0 10.0 62.5       2.0  1.0    0.8  1.0 12.5      -     -  0.0     1.00
run1 -       -     -      -    -      - -            -     0       -    -    -         -    -      -    -    -      -     -  0.0        -
run2 -       -     -      -    -      - -            -     1  3200.0  5.0    -         -    -      -    -    -     10     -  2.5     2.00)");
}

TEST(Comparison, NamesRunsByTheirPathsWhereTheirNamesAreEqual) {
  const TempDir dir;
  auto reports = reports_of(dir, {kSteps, kSteps});
  reports[1].log.dir = reports[0].log.dir / "";  // with a slash at its end
  const std::string table = comparison(reports);
  EXPECT_THAT(table, HasSubstr(concat("\n", (dir / "run0 ").string())));
  EXPECT_THAT(table, HasSubstr(concat("\n", (dir / "run0/ ").string())));
}

TEST(Report, TellsWhatEndedTheRunAndWhatCouldNotBeRead) {
  const TempDir dir;
  const auto reports =
      reports_of(dir, {std::string(kSteps) + "junk\n" + R"({"event":"fault","step":1,"what":"stage 1 fell"})"});
  const std::string text = reports[0].text();
  EXPECT_THAT(text, HasSubstr("failed after step 1/-, 0.0 s: stage 1 fell\n"));
  EXPECT_THAT(
      text, HasSubstr("mlp on -: 2 stages x 2 replicas over 2 processes, schedule 1f1b, chunks 4, global batch 16\n"));
  EXPECT_THAT(text, HasSubstr("1 line of metrics.jsonl cannot be read and is left out"));
  EXPECT_THAT(text, HasSubstr("config.toml is left out: "));
  EXPECT_THAT(text, HasSubstr("\n1600.0 samples/s, step 10.00 ms, devices busy 62.5 %, MFU 12.5 %\n"));
  EXPECT_THAT(text, HasSubstr("advice: -"));
  const auto json = reports[0].json();
  EXPECT_EQ(json.at("outcome"), "failed");
  EXPECT_EQ(json.at("devices"), 4);
  EXPECT_EQ(json.at("unreadable_lines"), 1);
  EXPECT_TRUE(json.at("advice").is_null());
}

TEST(Report, PrintsAdviceAndThatThereIsNone) {
  const TempDir dir;
  const auto reports = reports_of(dir, {R"({"event":"summary","advice":["raise data.workers","and more"]})",
                                        R"({"event":"summary","advice":[]})", R"({"event":"summary","advice":null})"});
  EXPECT_THAT(reports[0].text(), testing::EndsWith("\nadvice:\n- raise data.workers\n- and more"));
  EXPECT_THAT(reports[1].text(), testing::EndsWith("\nadvice: none; nothing would save as much as 3 % of the step"));
  EXPECT_THAT(reports[2].text(), testing::EndsWith("\nadvice: -"));
}

}  // namespace
}  // namespace sluice::train
