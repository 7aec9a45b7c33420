#include "train/records/run_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "core/concat.h"
#include "support.h"
#include "train/records/metrics_writer.h"

namespace sluice::train {
namespace {

using nlohmann::ordered_json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string step_line(int step, const std::string& more = "") {
  return concat(R"({"event":"step","time_s":)", step, R"(,"step":)", step, R"(,"step_ms":10)", more, "}\n");
}

RunLog log_of(const TempDir& dir, const std::string& lines) {
  spill(dir / "metrics.jsonl", lines);
  return read_run_log(dir.path());
}

TEST(RunLog, AveragesTimesOverStepsAndRatesOverTime) {
  const TempDir dir;
  const RunLog log = log_of(
      dir,
      concat(
          R"({"event":"step","step":1,"step_ms":10,"load_ms":2,"samples_per_s":100,"mfu":0.5,"device_busy":[1,0.5],)",
          R"("net":{"lo":{"sent":8,"received":0}},"sync_bytes":40,"skew_ms":null,"loss":2})", "\n",
          R"({"event":"step","step":2,"step_ms":30,"load_ms":4,"samples_per_s":20,"mfu":null,"device_busy":[0,0.1],)",
          R"("net":{"lo":{"sent":0,"received":4}},"sync_bytes":20,"loss":1})", "\n"));
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

TEST(RunLog, ReadsWhatTheWriterWrites) {
  const TempDir dir;
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

TEST(RunLog, ToleratesATornLastLineAndCountsOtherDamage) {
  const TempDir dir;
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
  const TempDir dir;
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
  const auto places = place_times(log.summary.at("breakdown"));
  ASSERT_EQ(places.size(), 1U);
  EXPECT_EQ(places[0].stage, 1);
  EXPECT_EQ(places[0].ms, (Numbers{{"load_ms", 2.0}}));
  EXPECT_THAT(place_times(nullptr), IsEmpty());
}

TEST(RunLog, TheOutcomeIsWhatTheRecordsEndWith) {
  const TempDir dir;
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
  const TempDir dir;
  EXPECT_THAT(log_of(dir, step_line(1)).evaluations, IsEmpty());
  EXPECT_THAT(steps(log_of(dir, eval(1, R"("top1":5)"))), ElementsAre(1, 1, 1));
  EXPECT_THAT(steps(log_of(dir, eval(1, R"("top1":5)") + eval(2, R"("top1":9,"loss":7)") +
                                    eval(3, R"("top1":9,"loss":1)") + eval(4, R"("top1":7)"))),
              ElementsAre(1, 2, 4));
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
  const TempDir dir;
  EXPECT_THAT(refusal(dir / "nowhere"), testing::Pair(ExitCode::kUsage, HasSubstr("there is no run directory")));
  EXPECT_THAT(refusal(dir.path()), testing::Pair(ExitCode::kUsage, HasSubstr("holds no metrics.jsonl")));
  spill(dir / "metrics.jsonl", "");
  EXPECT_THAT(refusal(dir / "metrics.jsonl"), testing::Pair(ExitCode::kUsage, HasSubstr("is a file")));
  EXPECT_EQ(refusal(dir.path()).first, ExitCode::kDone) << "a run that has just begun";
  spill(dir / "metrics.jsonl", std::string("\x7f"
                                           "ELF\0\n\n\xff\xfe",
                                           9));
  EXPECT_THAT(refusal(dir.path()), testing::Pair(ExitCode::kData, HasSubstr("none is a record")));
  std::filesystem::remove(dir / "metrics.jsonl");
  std::filesystem::create_directory(dir / "metrics.jsonl");
  EXPECT_THAT(refusal(dir.path()), testing::Pair(ExitCode::kData, HasSubstr("no file that can be read")));
}

}  // namespace
}  // namespace sluice::train
