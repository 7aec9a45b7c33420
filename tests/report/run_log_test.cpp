#include "report/run_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <functional>

#include "core/concat.h"
#include "report/metrics_writer.h"
#include "support/files.h"

namespace sluice::report {
namespace {

using nlohmann::ordered_json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string step_line(int step, const std::string& more = "") {
  return concat(R"({"event":"step","time_s":)", step, R"(,"step":)", step, R"(,"step_ms":10)", more, "}\n");
}

RunLog log_of(const test::TempDir& dir, const std::string& lines) {
  test::spill(dir / "metrics.jsonl", lines);
  return read_run_log(dir.path());
}

TEST(RunLog, TooManyOpenFilesAreNoFaultOfTheFile) {
  const test::TempDir dir;
  test::spill(dir / "metrics.jsonl", step_line(1));
  EXPECT_THAT(test::error_without_files([&] { return read_run_log(dir.path()); }), HasSubstr("ulimit -n"));
}

TEST(RunLog, TheGoodputCountsStepsOnceAndTheTimeBetweenTheStarts) {
  const test::TempDir dir;
  const auto plan = [](double unix_s, double time_s) {
    return concat(R"({"event":"plan","time_s":)", time_s, R"(,"unix_s":)", unix_s, "}\n");
  };
  const auto step = [](int number, double time_s) {
    return concat(R"({"event":"step","time_s":)", time_s, R"(,"step":)", number, R"(,"step_ms":2000})", "\n");
  };
  // 2 s until the first plan, 4 s of steps, an evaluation, 5 s in which a process is lost, a save and a change of plan.
  const std::string records = concat(
      plan(1000, 2), step(1, 4), step(2, 6), R"({"event":"eval","time_s":7,"eval_s":1})", "\n", plan(1010, 7),
      R"({"event":"checkpoint","time_s":7.5,"save_s":0.5})", "\n", step(3, 9.5), R"({"event":"lost","time_s":9.5})",
      "\n", R"({"event":"transition","time_s":9.5,"step":3})", "\n", plan(1012.5, 9.5), step(4, 12));
  const RunLog log = log_of(dir, records);
  const ordered_json goodput = log.goodput.json();
  EXPECT_DOUBLE_EQ(goodput.at("goodput").get<double>(), 8.0 / 17.0);
  EXPECT_EQ(goodput.at("lost_s"),
            (ordered_json{{"restart", 5.0}, {"evaluation", 1.0}, {"saving", 0.5}, {"other", 2.5}}));
  EXPECT_EQ(log.goodput.text(),
            "goodput 47.1 %: steps took 8.0 s of 17.0 s; the rest: restart 5.0 s, evaluation 1.0 s, saving 0.5 s, "
            "other 2.5 s");
  EXPECT_EQ(log.resumed_at, 2) << "what the end covers";
  EXPECT_EQ(log.steps_since_resume, 2);
}

TEST(RunLog, OlderRecordsHaveNoGoodput) {
  const test::TempDir dir;
  EXPECT_EQ(log_of(dir, step_line(1)).goodput.text(), "");
}

TEST(RunLog, AveragesTimesOverStepsAndRatesOverTime) {
  const test::TempDir dir;
  const RunLog log = log_of(
      dir,
      concat(
          R"({"event":"step","step":1,"step_ms":10,"load_ms":2,"samples_per_s":100,"mfu":0.5,"device_busy":[1,0.5],)",
          R"("net_bytes_per_s":8,"net":{"lo":{"sent":8,"received":0}},"sync_bytes":40,"skew_ms":null,"loss":2})", "\n",
          R"({"event":"step","step":2,"step_ms":30,"load_ms":4,"samples_per_s":20,"mfu":null,"device_busy":[0,0.1],)",
          R"("net_bytes_per_s":4,"net":{"lo":{"sent":0,"received":4}},"sync_bytes":20,"loss":1})", "\n"));
  EXPECT_EQ(log.steps, 2);
  EXPECT_EQ(log.last_step, 2);
  EXPECT_EQ(log.last_loss, 1);
  EXPECT_DOUBLE_EQ(log.means.at("step_ms"), 20);
  EXPECT_DOUBLE_EQ(log.means.at("load_ms"), 3);
  EXPECT_DOUBLE_EQ(log.means.at("sync_bytes"), 30);
  EXPECT_DOUBLE_EQ(log.means.at("samples_per_s"), (1.0 + 0.6) / 0.04) << "1 sample in 10 ms, 0.6 in 30 ms";
  EXPECT_DOUBLE_EQ(log.means.at("mfu"), 0.5) << "over the steps that have it";
  EXPECT_DOUBLE_EQ(log.means.at("net/lo/sent"), 2);
  EXPECT_DOUBLE_EQ(log.means.at("net/lo/received"), 3);
  EXPECT_THAT(log.device_busy, ElementsAre(0.25, testing::DoubleEq(0.2)));
  EXPECT_FALSE(number_in(log.means, "skew_ms")) << "null in one line, absent in the other";
}

// 4 devices in a step of 10 ms, 1 in one of 10 ms: 40 and 10 ms of devices.
TEST(RunLog, WhatIsOfDevicesIsAveragedOverTheTimeOfDevices) {
  const test::TempDir dir;
  const RunLog log =
      log_of(dir, step_line(1, R"(,"forward_ms":1,"mfu":0.1,"flops_per_s":40,"device_busy":[0.1,0.2,0.3,0.4])") +
                      step_line(2, R"(,"forward_ms":1,"mfu":0.6,"flops_per_s":60,"device_busy":[0.75])"));
  EXPECT_DOUBLE_EQ(log.means.at("mfu"), (0.1 * 40 + 0.6 * 10) / 50);
  EXPECT_DOUBLE_EQ(log.device_busy_mean.value(), (0.25 * 40 + 0.75 * 10) / 50);
}

TEST(RunLog, StepsWithABreakdownHaveAMeanOfTheirOwn) {
  const test::TempDir dir;
  const RunLog log = log_of(dir, R"({"event":"step","step":1,"step_ms":1000,"forward_ms":null})"
                                 "\n" +
                                     step_line(2, R"(,"forward_ms":4)") + step_line(3, R"(,"forward_ms":6)"));
  EXPECT_EQ(log.timed_steps, 2);
  EXPECT_DOUBLE_EQ(log.timed_step_ms, 10);
  EXPECT_DOUBLE_EQ(log.means.at("forward_ms"), 5);
  EXPECT_DOUBLE_EQ(log.means.at("step_ms"), 340);
}

TEST(RunLog, PartsOfARateAddUpToIt) {
  const test::TempDir dir;
  const auto net = [](const char* total, const char* more) {
    return concat(R"(,"net_bytes_per_s":)", total, R"(,"flops_per_s":)", total, more);
  };
  const RunLog log = log_of(
      dir, concat(step_line(1, net("null", R"(,"net":{"eth0":{"sent":1000,"received":0}})")),
                  step_line(2, net("6", R"(,"net":{"eth0":{"sent":6,"received":0}},"flops_per_s_by_kind":{"a":6})")),
                  step_line(3, net("2", R"(,"net":{"lo":{"sent":0,"received":2}},"flops_per_s_by_kind":{"b":2})")),
                  step_line(4, net("1", ""))));
  EXPECT_DOUBLE_EQ(log.means.at("net_bytes_per_s"), 3);
  EXPECT_DOUBLE_EQ(log.means.at("net/eth0/sent"), 2) << "absent from two lines: 0 there; the first does not count";
  EXPECT_DOUBLE_EQ(log.means.at("net/lo/received"), 2.0 / 3);
  EXPECT_DOUBLE_EQ(log.means.at("flops_per_s_by_kind/a"), 2);
  EXPECT_DOUBLE_EQ(log.means.at("flops_per_s_by_kind/b"), 2.0 / 3);
}

TEST(RunLog, CountsCheckpointsByTheirStepsWithWhatWasResumedFrom) {
  const test::TempDir dir;
  const auto event = [](const char* name, int step) {
    return concat(R"({"event":")", name, R"(","step":)", step, "}\n");
  };
  const std::string first = step_line(1) + event("checkpoint", 1) + step_line(2);  // the line of step 2 was cut off
  EXPECT_THAT(log_of(dir, first + event("resume", 2) + step_line(3) + event("checkpoint", 3)).checkpoints,
              ElementsAre(1, 2, 3));
  EXPECT_THAT(log_of(dir, first + event("checkpoint", 2) + event("resume", 2) + event("resume", 2)).checkpoints,
              ElementsAre(1, 2));
  const RunLog other = log_of(dir, event("resume", 2) + step_line(3) + event("checkpoint", 3));
  EXPECT_THAT(other.checkpoints, ElementsAre(3)) << "what it resumed from is another run's";
  EXPECT_EQ(other.resumed_at, 2);
  EXPECT_THAT(log_of(dir, event("resume", 0) + step_line(1)).checkpoints, IsEmpty()) << "nor is a step-0 this run's";
}

TEST(RunLog, CountsStepsWithoutAllTheirSpans) {
  const test::TempDir dir;
  const RunLog log =
      log_of(dir, concat(step_line(1), step_line(2, R"(,"spans_dropped":7)"), step_line(3, R"(,"spans_dropped":0)")));
  EXPECT_EQ(log.incomplete_steps, 1);
}

TEST(RunLog, ReadsWhatTheWriterWrites) {
  const test::TempDir dir;
  {
    MetricsWriter writer(dir / "metrics.jsonl");
    writer.write("plan", {{"model", "mlp"}, {"stages", 2}});
    writer.write("step", {{"step", 1}, {"step_ms", 5.0}, {"loss", std::nan("")}});
    writer.write("summary", {{"outcome", "done"}, {"wall_s", 7.5}});
  }
  const RunLog log = read_run_log(dir.path());
  EXPECT_EQ(log.plan.at("model"), "mlp");
  EXPECT_TRUE(std::isnan(log.last_loss.value()));
  EXPECT_EQ(log.outcome(), "done");
  EXPECT_EQ(log.wall_s(), 7.5);
  EXPECT_EQ(log.count("step"), 1);
  EXPECT_EQ(log.count("checkpoint"), 0);
}

TEST(RunLog, OfSeveralPlansTheLastCounts) {
  const test::TempDir dir;
  {
    MetricsWriter writer(dir / "metrics.jsonl");
    writer.write("plan", {{"stages", 2}, {"chunks", 4}});
    writer.write("step", {{"step", 1}, {"step_ms", 5.0}});
    writer.write("transition", {{"step", 1}});
    writer.write("plan", {{"stages", 3}});
  }
  const RunLog log = read_run_log(dir.path());
  EXPECT_EQ(log.plan.at("stages"), 3);
  EXPECT_FALSE(log.plan.contains("chunks")) << "nothing of an earlier one stays";
  EXPECT_EQ(log.plan_since, 1);
}

TEST(RunLog, ToleratesATornLastLineAndCountsOtherDamage) {
  const test::TempDir dir;
  const std::string last = step_line(2);
  for (std::size_t kept = 0; kept < last.size(); ++kept) {
    const RunLog log = log_of(dir, step_line(1) + last.substr(0, kept));
    const bool is_whole = kept == last.size() - 1;  // only the line break is missing
    EXPECT_EQ(log.steps, is_whole ? 2 : 1) << kept;
    EXPECT_EQ(log.is_torn, kept > 0 && !is_whole) << kept;
    EXPECT_EQ(log.unreadable_lines, 0) << kept;
  }
  const RunLog log = log_of(dir, concat("garbage\n[]\n\n7\n{\"event\":3}\n{\"step\":1}\n", step_line(1),
                                        "{\"event\":\n", std::string("\0\xff\n", 3), step_line(2), "trailing"));
  EXPECT_EQ(log.steps, 2);
  EXPECT_EQ(log.unreadable_lines, 8);
  EXPECT_FALSE(log.is_torn);
}

TEST(RunLog, FieldsOfAWrongKindAreAbsent) {
  const test::TempDir dir;
  const RunLog log = log_of(
      dir,
      R"({"event":"step","step":"x","step_ms":[1],"load_ms":{},"device_busy":"no","net":[1],"samples_per_s":true})"
      "\n"
      R"({"event":"step","step":1e300,"step_ms":4,"device_busy":["NaN",1],"net":{"lo":3,"eth0":{"sent":"x"}}})"
      "\n"
      R"({"event":"summary","outcome":5,"breakdown":[1,{"replica":"a"},{"replica":0,"stage":1,"load_ms":2,"name":"x"}]})"
      "\n");
  EXPECT_EQ(log.last_step, 0);
  EXPECT_EQ(log.means, (Numbers{{"step_ms", 4.0}}));
  EXPECT_THAT(log.device_busy, ElementsAre(0, 1));
  EXPECT_EQ(log.outcome(), "unfinished");
  const auto slots = slot_times(log.summary.at("breakdown"));
  ASSERT_EQ(slots.size(), 1U);
  EXPECT_EQ(slots[0].device, 1);
  EXPECT_EQ(slots[0].ms, (Numbers{{"load_ms", 2.0}}));
  EXPECT_THAT(slot_times(nullptr), IsEmpty());
}

TEST(RunLog, TheOutcomeIsWhatTheRecordsEndWith) {
  const test::TempDir dir;
  const std::string fault = R"({"event":"fault","step":1,"what":"stage 1 failed"})"
                            "\n";
  const std::string summary = R"({"event":"summary","outcome":"interrupted"})"
                              "\n";
  const std::string resume = R"({"event":"resume","step":1})"
                             "\n";
  EXPECT_EQ(log_of(dir, "").outcome(), "unfinished");
  EXPECT_EQ(log_of(dir, step_line(1)).outcome(), "unfinished");
  EXPECT_EQ(log_of(dir, step_line(1) + summary).outcome(), "interrupted");
  EXPECT_EQ(log_of(dir, step_line(1) + fault).outcome(), "failed");
  const RunLog resumed = log_of(dir, step_line(1) + fault + summary + resume + step_line(2) + step_line(3));
  EXPECT_EQ(resumed.outcome(), "unfinished");
  EXPECT_THAT(resumed.summary, IsEmpty());
  EXPECT_EQ(resumed.fault.at("what"), "stage 1 failed");
  EXPECT_EQ(resumed.steps, 3);
  EXPECT_EQ(resumed.steps_since_resume, 2);
}

TEST(RunLog, KeepsTheFirstBestAndLastEvaluation) {
  const auto eval = [](int step, const std::string& fields) {
    return concat(R"({"event":"eval","step":)", step, ",", fields, "}\n");
  };
  const auto steps = [](const RunLog& log) {
    std::vector<int> steps;
    for (const auto& one : log.evaluations) steps.push_back(one.at("step"));
    return steps;
  };
  const test::TempDir dir;
  EXPECT_THAT(log_of(dir, step_line(1)).evaluations, IsEmpty());
  EXPECT_THAT(steps(log_of(dir, eval(1, R"("top1":5)"))), ElementsAre(1, 1, 1));
  EXPECT_THAT(steps(log_of(dir, eval(1, R"("top1":5)") + eval(2, R"("top1":9,"loss":7)") +
                                    eval(3, R"("top1":9,"loss":1)") + eval(4, R"("top1":7)"))),
              ElementsAre(1, 2, 4));
  EXPECT_THAT(steps(log_of(dir, eval(1, R"("top1":9,"loss":7,"perplexity":1096)") +
                                    eval(2, R"("top1":8,"loss":1,"perplexity":2.7)") +
                                    eval(3, R"("top1":7,"loss":2,"perplexity":7.4)"))),
              ElementsAre(1, 2, 3));
  EXPECT_THAT(steps(log_of(dir, eval(1, R"("loss":5)") + eval(2, R"("loss":"NaN")") + eval(3, R"("loss":2)") +
                                    eval(4, R"("loss":3)"))),
              ElementsAre(1, 3, 4));
}

// The exit code and the text of the error.
std::pair<ExitCode, std::string> refusal(const std::filesystem::path& dir) {
  try {
    static_cast<void>(read_run_log(dir));
  } catch (const Error& error) {
    return {error.exit_code(), error.what()};
  }
  return {ExitCode::kDone, ""};
}

TEST(RunLog, RefusesWhatIsNoRun) {
  const test::TempDir dir;
  EXPECT_THAT(refusal(dir / "nowhere"), testing::Pair(ExitCode::kUsage, HasSubstr("there is no run directory")));
  EXPECT_THAT(refusal(dir.path()), testing::Pair(ExitCode::kUsage, HasSubstr("has no metrics.jsonl")));
  test::spill(dir / "metrics.jsonl", "");
  EXPECT_THAT(refusal(dir / "metrics.jsonl"), testing::Pair(ExitCode::kUsage, HasSubstr("is a file")));
  EXPECT_EQ(refusal(dir.path()).first, ExitCode::kDone) << "a run that has just begun";
  test::spill(dir / "metrics.jsonl", std::string("\x7f"
                                                 "ELF\0\n\n\xff\xfe",
                                                 9));
  EXPECT_THAT(refusal(dir.path()), testing::Pair(ExitCode::kData, HasSubstr("no record of a run")));
  std::filesystem::remove(dir / "metrics.jsonl");
  std::filesystem::create_directory(dir / "metrics.jsonl");
  EXPECT_THAT(refusal(dir.path()), testing::Pair(ExitCode::kData, HasSubstr("metrics.jsonl is not a file")));
}

TEST(RunLog, SaysWhatMayNotBeRead) {
  const test::TempDir dir;
  namespace fs = std::filesystem;
  fs::create_symlink(dir / "loop", dir / "loop");
  EXPECT_THAT(refusal(dir / "loop"), testing::Pair(ExitCode::kData, HasSubstr("loop cannot be read: Too many levels")));
  const fs::path closed = dir / "run\x1b";
  fs::create_directory(closed);
  test::spill(closed / "metrics.jsonl", step_line(1));
  fs::permissions(dir.path(), fs::perms::owner_all | fs::perms::group_exec | fs::perms::others_exec);
  const bool is_root = ::geteuid() == 0;  // may read everything
  constexpr uid_t kNobody = 65534;
  const auto refusal_with = [&](fs::perms of_folder, fs::perms of_file) {
    fs::permissions(closed / "metrics.jsonl", of_file);
    fs::permissions(closed, of_folder);
    EXPECT_EQ(is_root ? ::seteuid(kNobody) : 0, 0);
    auto result = refusal(closed);
    EXPECT_EQ(is_root ? ::seteuid(0) : 0, 0);
    fs::permissions(closed, fs::perms::owner_all);
    return result;
  };
  EXPECT_THAT(refusal_with(fs::perms::none, fs::perms::all),
              testing::Pair(ExitCode::kData, HasSubstr("run?/metrics.jsonl cannot be read: Permission denied")));
  EXPECT_THAT(refusal_with(fs::perms::all, fs::perms::none),
              testing::Pair(ExitCode::kData, HasSubstr("run?/metrics.jsonl cannot be read: Permission denied")));
  EXPECT_EQ(refusal_with(fs::perms::all, fs::perms::all).first, ExitCode::kDone);
}

}  // namespace
}  // namespace sluice::report
