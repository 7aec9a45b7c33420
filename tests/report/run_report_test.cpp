#include "report/run_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/concat.h"
#include "core/text.h"
#include "report/time_table.h"
#include "support/files.h"

namespace sluice::report {
namespace {

using testing::HasSubstr;
using testing::Not;

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
      time_table(std::vector{SlotTimes{0, 0, ms}, SlotTimes{0, 1, other}}, {}, 7),
      "where the time went, mean of all 7 steps (ms; allreduce: the part that computing does not hide; "
      "skew: waiting for the slowest replica):\n"
      R"(                   load  forward  backward  transfer  allreduce  skew  optimizer  bubble  other   step    busy
replica 0 stage 0  1.00    10.00     20.00      2.00       5.00  4.00       3.00    6.00   4.00  55.00  60.0 %
replica 0 stage 1  1.00    12.00     20.00      2.00       5.00  4.00       3.00    6.00   2.00  55.00  63.6 %
mean               1.00    11.00     20.00      2.00       5.00  4.00       3.00    6.00   3.00  55.00  61.8 %)");
}

// Of 12 steps, 4 ran on two slots: the mean is that of 16 rows of a step.
TEST(TimeTable, SaysInHowManyStepsASlotHasRunAndWeighsItByThem) {
  const std::vector<SlotTimes> slots{{0, 0, {{"forward_ms", 4.0}, {"step_ms", 8.0}}, 12},
                                     {0, 1, {{"forward_ms", 8.0}, {"step_ms", 16.0}}, 4}};
  const std::string table = time_table(slots, {}, 12);
  EXPECT_THAT(table, testing::HasSubstr("replica 0 stage 0     "));
  EXPECT_THAT(table, testing::HasSubstr("replica 0 stage 1 (4 steps)"));
  EXPECT_THAT(table, testing::ContainsRegex("mean +- +5\\.00 .* 10\\.00 "));
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

TEST(TimeTable, TheTitleSaysWhichStepsAndWhoseDevices) {
  const Numbers ms{{"step_ms", 2.0}};
  EXPECT_THAT(time_table({}, ms, 1, 2), testing::StartsWith("where the time went, mean of 1 step, of rank 0 of 2 "
                                                            "processes (ms; "));
  EXPECT_THAT(time_table({}, ms, 1, 1, "since the resume at step 3 (1 step)"),
              testing::StartsWith("where the time went, mean since the resume at step 3 (1 step) (ms; "));
}

std::vector<RunReport> reports_of(const test::TempDir& dir, const std::vector<std::string>& records) {
  std::vector<RunReport> reports;
  for (std::size_t i = 0; i < records.size(); ++i) {
    const auto run_dir = dir / concat("run", i);
    std::filesystem::create_directory(run_dir);
    test::spill(run_dir / "metrics.jsonl", records[i]);
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
  const test::TempDir dir;
  const auto reports =
      reports_of(dir, {kSteps, "",
                       R"({"event":"step","step":1,"step_ms":5,"samples_per_s":3200})"
                       "\n"
                       R"({"event":"summary","outcome":"done","wall_s":2.5,"peak_memory_bytes":{"process":10485760}})"
                       "\n"});
  EXPECT_EQ(
      comparison(reports),
      R"(run               model dev procs stages repl chunks schedule batch steps samples step busy allreduce skew bubble load  MFU memory top-1 loss wall speed-up
                                                                               /s   ms    %        ms   ms     ms   ms    %    MiB     %         s
run0 (unfinished) mlp     4     2      2    2      4 1f1b        16     1  1600.0 10.0 62.5       2.0  1.0    0.8  1.0 12.5      -     -    -  0.0     1.00
run1 (unfinished) -       -     -      -    -      - -            -     0       -    -    -         -    -      -    -    -      -     -    -  0.0        -
run2              -       -     -      -    -      - -            -     1  3200.0  5.0    -         -    -      -    -    -     10     -    -  2.5     2.00)");
}

TEST(Comparison, MarksARunWhoseShapeIsNotThatOfAllItsSteps) {
  const test::TempDir dir;
  const std::string changed = concat(kSteps, R"({"event":"transition","step":1})", "\n");
  const std::string table = comparison(reports_of(dir, {kSteps, changed}));
  EXPECT_THAT(table, HasSubstr("\nrun0 (unfinished) "));
  EXPECT_THAT(table, HasSubstr("\nrun1* (unfinished) "));
  EXPECT_THAT(table, HasSubstr("\n* the plan changed during the run: the shape is that of the last plan"));
  EXPECT_THAT(comparison(reports_of(dir, {kSteps, kSteps})), Not(HasSubstr("*")));
}

TEST(Comparison, NamesRunsByTheirPathsWhereTheirNamesAreEqual) {
  const test::TempDir dir;
  auto reports = reports_of(dir, {kSteps, kSteps});
  reports[1].log.dir = reports[0].log.dir / "";  // with a slash at its end
  const std::string table = comparison(reports);
  EXPECT_THAT(table, HasSubstr(concat("\n", (dir / "run0 ").string())));
  EXPECT_THAT(table, HasSubstr(concat("\n", (dir / "run0/ ").string())));
}

TEST(Report, TellsWhatEndedTheRunAndWhatCouldNotBeRead) {
  const test::TempDir dir;
  const auto reports =
      reports_of(dir, {std::string(kSteps) + "junk\n" + R"({"event":"fault","step":1,"what":"stage 1 fell"})"});
  const std::string text = reports[0].text();
  EXPECT_THAT(text, HasSubstr("failed after step 1/-, 0.0 s: stage 1 fell\n"));
  EXPECT_THAT(
      text, HasSubstr("mlp on -: 2 stages x 2 replicas over 2 processes, schedule 1f1b, chunks 4, global batch 16\n"));
  EXPECT_THAT(text, HasSubstr("1 line of metrics.jsonl cannot be read and is skipped"));
  EXPECT_THAT(text, HasSubstr("\nnote: config.toml is missing\n"));
  EXPECT_THAT(text, HasSubstr("\n1600.0 samples/s, step 10.00 ms, devices of rank 0 busy 62.5 %, MFU 12.5 %\n"));
  EXPECT_THAT(text, HasSubstr("where the time went, mean of 1 step, of rank 0 of 2 processes (ms"));
  EXPECT_THAT(text, testing::EndsWith("\nadvice: -")) << "nobody said that nothing was recorded";
  const auto json = reports[0].json();
  EXPECT_EQ(json.at("outcome"), "failed");
  EXPECT_EQ(json.at("devices"), 4);
  EXPECT_EQ(json.at("unreadable_lines"), 1);
  EXPECT_EQ(json.at("device_busy_mean"), 0.625);
  EXPECT_EQ(json.at("device_busy"), (std::vector{0.5, 0.75}));
  EXPECT_TRUE(json.at("advice").is_null());
}

TEST(Report, PrintsAdviceAndThatThereIsNone) {
  const test::TempDir dir;
  const auto reports =
      reports_of(dir, {R"({"event":"summary","advice":["raise data.workers","and more"],"advice_steps":7})",
                       R"({"event":"summary","advice":[]})", concat(kSteps, R"({"event":"summary","advice":null})")});
  EXPECT_THAT(reports[0].text(),
              testing::EndsWith("\nadvice, from the last 7 steps:\n- raise data.workers\n- and more"));
  EXPECT_THAT(reports[1].text(), testing::EndsWith("\nadvice: none; no change would save 3 % of the step or more"));
  EXPECT_THAT(reports[2].text(), testing::EndsWith("\nadvice: - (nothing was recorded: profile.level = \"off\")"));
}

TEST(Report, SaysWhichNumbersAreOfTheWholeRunAndWhichSinceTheResume) {
  const test::TempDir dir;
  const std::string begin = R"({"event":"step","step":1,"step_ms":10,"samples_per_s":10})"
                            "\n"
                            R"({"event":"resume","step":1})"
                            "\n"
                            R"({"event":"step","step":2,"step_ms":30,"samples_per_s":10})"
                            "\n"
                            R"({"event":"step","step":3,"step_ms":20,"samples_per_s":10})"
                            "\n";
  const std::string end = R"({"event":"summary","breakdown":[{"replica":0,"stage":0,"step_ms":25}],"advice":["more"],)"
                          R"("evaluation_s":1.5,"checkpoints_s":90})"
                          "\n";
  const auto reports = reports_of(dir, {begin + end, begin, begin.substr(begin.find('\n') + 1) + end});
  const std::string done = reports[0].text(), unfinished = reports[1].text(), from_elsewhere = reports[2].text();
  EXPECT_THAT(done, HasSubstr("where the time went, mean since the resume at step 1 (2 steps) (ms"));
  EXPECT_THAT(done, HasSubstr("\nwhole run (3 steps): 10.0 samples/s, step 20.00 ms\n"));
  EXPECT_THAT(done, HasSubstr("\nbetween the steps since the resume: evaluation 1.5 s, checkpoints 1 min 30 s\n"));
  EXPECT_THAT(done, HasSubstr("\npeak memory since the resume: "));
  EXPECT_THAT(done, HasSubstr("\n0 evaluations, 1 checkpoint, 1 resume, "));
  EXPECT_THAT(done, testing::EndsWith("\nadvice since the resume:\n- more"));
  EXPECT_THAT(unfinished, HasSubstr("where the time went, mean of the whole run (3 steps) (ms"));
  EXPECT_THAT(unfinished, testing::Not(HasSubstr("between the steps")));
  EXPECT_THAT(from_elsewhere, HasSubstr("mean since the resume at step 1 (2 steps) (ms"));
  EXPECT_THAT(from_elsewhere, HasSubstr("\n10.0 samples/s"));
  EXPECT_THAT(from_elsewhere, HasSubstr("\n0 evaluations, 0 checkpoints, 1 resume, "));
}

TEST(Report, WithoutARecordIsOneLine) {
  const test::TempDir dir;
  const auto reports = reports_of(dir, {"", R"({"event":"pl)", R"({"event":"plan","model":"mlp"})"});
  EXPECT_EQ(reports[0].text(), concat((dir / "run0").string(), ": no record yet (0 steps)"));
  EXPECT_EQ(reports[1].text(),
            concat((dir / "run1").string(), ": no record yet (0 steps); the only line of metrics.jsonl is incomplete"));
  EXPECT_THAT(reports[2].text(), HasSubstr("\nwhere the time went: no step is recorded yet\n"));
}

TEST(Report, TheLossIsTheLastEvaluationsAndEpochsCountFromOneInTheText) {
  const test::TempDir dir;
  const auto reports = reports_of(dir, {R"({"event":"step","step":1,"loss":"NaN"})"
                                        "\n"
                                        R"({"event":"eval","step":1,"epoch":0,"loss":2.5,"top1":10})"
                                        "\n"
                                        R"({"event":"eval","step":1,"epoch":4,"loss":"Infinity","top1":5})",
                                        R"({"event":"step","step":1,"loss":3})"});
  const auto json = reports[0].json();
  EXPECT_EQ(json.at("loss"), "Infinity");
  EXPECT_EQ(json.at("train_loss"), "NaN");
  EXPECT_EQ(json.at("evaluations").at("last").at("epoch"), 4) << "as in metrics.jsonl";
  EXPECT_THAT(reports[0].text(), HasSubstr("\nlast           1      5     5.00  Infinity        -"));
  EXPECT_THAT(reports[0].text(), HasSubstr("\nfirst          1      1    10.00    2.5000        -"));
  EXPECT_TRUE(reports[1].json().at("loss").is_null());
  EXPECT_EQ(reports[1].json().at("train_loss"), 3);
}

TEST(Report, ShowsPartsOfRatesAndThatTheBreakdownIsIncomplete) {
  const test::TempDir dir;
  const auto reports = reports_of(
      dir, {R"({"event":"step","step":1,"step_ms":10,"flops_per_s":4e9,"flops_per_s_by_kind":{"linear":4e9},)"
            R"("mfu":null,"allreduce_hidden_ms":1.5,"spans_dropped":3})"
            "\n"
            R"({"event":"step","step":2,"step_ms":10,"flops_per_s":2e9,"flops_per_s_by_kind":{"convolution":2e9},)"
            R"("mfu":null,"allreduce_hidden_ms":2.5})"
            "\n"
            R"({"event":"st)"});
  const std::string text = reports[0].text();
  EXPECT_THAT(text, HasSubstr("\nstep 10.00 ms, allreduce hidden 2.00 ms, 3.0 model GFLOP/s "
                              "(convolution 1.0, linear 2.0), peak unknown\n"));
  EXPECT_THAT(text, HasSubstr("\nnote: the breakdown is incomplete: 1 step had more spans than the recorder keeps\n"));
  EXPECT_THAT(text, HasSubstr("\nnote: the last line of metrics.jsonl is incomplete and is skipped\n"));
  EXPECT_EQ(reports[0].json().at("incomplete_steps"), 1);
}

TEST(Report, NoControlCharacterReachesTheTerminal) {
  const test::TempDir dir;
  const auto run_dir = dir / "a\x1b[2J\rb";
  std::filesystem::create_directory(run_dir);
  test::spill(
      run_dir / "metrics.jsonl",
      R"({"event":"plan","model":"m\u001b[1m","data":"d\nd","schedule":"\u009b2J","global_batch":"\u0007"})"
      "\n"
      R"({"event":"step","step":1,"step_ms":1,"net_bytes_per_s":1,"net":{"e\u001bth":{"sent":1,"received":0}},)"
      R"("flops_per_s":1,"flops_per_s_by_kind":{"k\u001b":1}})"
      "\n"
      R"({"event":"fault","what":"old\u001bfault"})"
      "\n"
      R"({"event":"summary","outcome":"do\tn","peak_memory_bytes":{"p\u007f":1},"advice":["\u001b]0;title\u0007"]})"
      "\n");
  test::spill(run_dir / "config.toml", "x = \"\x1b");
  const std::vector reports{read_report(run_dir), read_report(run_dir)};
  for (std::string text : {reports[0].text(), comparison(reports)}) {
    EXPECT_THAT(text, HasSubstr("m?[1m"));
    EXPECT_THAT(text, HasSubstr("?2J"));
    std::erase(text, '\n');
    EXPECT_EQ(text, printable(text));
  }
  EXPECT_THAT(reports[0].text(), testing::StartsWith((dir / "a?[2J?b: do?n after step 1").string()));
  EXPECT_THAT(reports[0].text(), HasSubstr(" on d?d: ")) << "a line break too";
  EXPECT_EQ(reports[0].json().at("model"), "m\x1b[1m") << "JSON keeps what was recorded, escaped";
}

}  // namespace
}  // namespace sluice::report
