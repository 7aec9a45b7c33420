#include "report/metrics_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>

#include <cmath>
#include <limits>
#include <thread>

#include "support/files.h"

namespace sluice::report {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<int> steps_in_file(const std::filesystem::path& file) {
  std::vector<int> steps;
  for (const auto& line : test::lines_of(file)) steps.push_back(json::parse(line).at("step"));
  return steps;
}

TEST(MetricsWriter, ALineIsAnObjectThatBeginsWithEventAndTime) {
  const test::TempDir dir;
  MetricsWriter writer(dir / "metrics.jsonl");
  EXPECT_TRUE(writer.write("step", {{"step", 1}, {"loss", 0.25}, {"note", "a\nb"}}));
  const auto lines = test::lines_of(dir / "metrics.jsonl");
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_THAT(lines[0],
              testing::MatchesRegex(R"(\{"event":"step","time_s":[0-9.e-]+,"step":1,"loss":0.25,"note":"a\\nb"\})"));
  EXPECT_EQ(writer.bytes(), lines[0].size() + 1);
}

TEST(MetricsWriter, NumbersThatJsonCannotHoldAreWrittenByName) {
  const test::TempDir dir;
  MetricsWriter writer(dir / "m");
  constexpr auto kInf = std::numeric_limits<double>::infinity();
  writer.write("step", {{"loss", std::nan("")}, {"norms", {1.0, kInf, -kInf}}});
  const auto line = json::parse(test::lines_of(dir / "m").at(0));
  EXPECT_EQ(line.at("loss"), "NaN");
  EXPECT_EQ(line.at("norms"), json::parse(R"([1.0, "Infinity", "-Infinity"])"));
}

TEST(MetricsWriter, BytesThatAreNotUtf8DoNotStopTraining) {
  const test::TempDir dir;
  MetricsWriter writer(dir / "m");
  EXPECT_TRUE(writer.write("fault", {{"file", "caf\xe9.jpg"}}));
  EXPECT_EQ(json::parse(test::lines_of(dir / "m").at(0)).at("file"), "caf\xEF\xBF\xBD.jpg");
}

TEST(MetricsWriter, AResumedRunShowsRepeatedStepsOnceAndTimeGoesOn) {
  const test::TempDir dir;
  MetricsPosition checkpoint;
  {
    MetricsWriter writer(dir / "m", {.bytes = 0, .time_s = 100.0});
    writer.write("step", {{"step", 1}});
    checkpoint = writer.sync();
    writer.write("step", {{"step", 2}});
    writer.write("step", {{"step", 3}});
  }
  MetricsWriter writer(dir / "m", checkpoint);
  EXPECT_EQ(writer.bytes(), checkpoint.bytes);
  writer.write("step", {{"step", 2}});
  EXPECT_THAT(steps_in_file(dir / "m"), ElementsAre(1, 2));
  const auto time_s = json::parse(test::lines_of(dir / "m").back()).at("time_s").get<double>();
  EXPECT_GE(time_s, checkpoint.time_s);
  EXPECT_LT(time_s, checkpoint.time_s + 60.0);
}

TEST(MetricsWriter, ANewRunStartsAnEmptyFile) {
  const test::TempDir dir;
  test::spill(dir / "m", "{\"step\":1}\n");
  const MetricsWriter writer(dir / "m");
  EXPECT_EQ(test::slurp(dir / "m"), "");
}

TEST(MetricsWriter, ATornLastLineIsCutAndAShortFileIsNotFilledUp) {
  const test::TempDir dir;
  test::spill(dir / "m", "{\"step\":1}\n{\"step\":2}\n{\"st");
  MetricsWriter writer(dir / "m", {.bytes = 1000, .time_s = 5.0});
  writer.write("step", {{"step", 3}});
  EXPECT_THAT(steps_in_file(dir / "m"), ElementsAre(1, 2, 3));
}

TEST(MetricsWriter, WholeLinesAreFoundAcrossBlocks) {
  const test::TempDir dir;
  std::string text = "first\n";
  text.append(200'000, 'x');
  test::spill(dir / "m", text);
  EXPECT_EQ(whole_lines(dir / "m", 300'000), 6U);
  EXPECT_EQ(whole_lines(dir / "m", 6), 6U);
  EXPECT_EQ(whole_lines(dir / "m", 5), 0U);
  EXPECT_EQ(whole_lines(dir / "none", 5), 0U);
  test::spill(dir / "m", std::string(200'000, 'x') + "\n" + std::string(300'000, 'y'));
  EXPECT_EQ(whole_lines(dir / "m", 600'000), 200'001U) << "the line break is in neither the first nor the last block";
}

TEST(MetricsWriter, TheLastOfSeveralEventsIsFound) {
  const test::TempDir dir;
  {
    MetricsWriter writer(dir / "m");
    for (const int step : {1, 2}) {
      writer.write("checkpoint", {{"step", step}});
      writer.write("step", {{"step", step + 10}});
    }
  }
  EXPECT_EQ(last_event(dir / "m", "checkpoint").value().at("step"), 2);
  EXPECT_FALSE(last_event(dir / "m", "resume"));
  EXPECT_FALSE(last_event(dir / "none", "checkpoint"));
}

TEST(MetricsWriter, AFullDeviceDropsLinesAndTrainingGoesOn) {
  MetricsWriter writer("/dev/full");
  testing::internal::CaptureStderr();
  for (int step = 0; step < 5; ++step) EXPECT_FALSE(writer.write("step", {{"step", step}}));
  const auto log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(writer.dropped(), 5U);
  EXPECT_EQ(writer.bytes(), 0U);
  EXPECT_THAT(log, HasSubstr("/dev/full: No space left on device; training continues without"));
  EXPECT_EQ(log.find("warning"), log.rfind("warning")) << "one warning only:\n" << log;
}

TEST(MetricsWriter, TheNumberOfDroppedLinesIsSaidAtTheEnd) {
  testing::internal::CaptureStderr();
  { MetricsWriter("/dev/full").write("step", {}); }
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("/dev/full: 1 records were dropped"));
}

// The limit on file sizes cuts a write() short, as a disk does that fills up in the middle of a line.
TEST(MetricsWriter, HalfALineIsTakenBackAndLaterLinesFollowWhenThereIsSpaceAgain) {
  const test::TempDir dir;
  const auto pid = ::fork();
  if (pid == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    MetricsWriter writer(dir / "m");
    rlimit limit{1000, RLIM_INFINITY};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    int step = 0;
    while (writer.write("step", {{"step", step}})) ++step;
    const bool whole = writer.bytes() == std::filesystem::file_size(dir / "m") && writer.dropped() == 1;
    limit.rlim_cur = RLIM_INFINITY;
    ::setrlimit(RLIMIT_FSIZE, &limit);
    ::_exit(whole && writer.write("step", {{"step", 999}}) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
  const auto steps = steps_in_file(dir / "m");
  EXPECT_GT(steps.size(), 10U);
  EXPECT_EQ(steps.back(), 999);
}

TEST(MetricsWriter, LinesOfSeveralThreadsDoNotMix) {
  const test::TempDir dir;
  MetricsWriter writer(dir / "m");
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 100; ++i) writer.write("step", {{"step", i}, {"text", std::string(300, 'x')}});
      });
    }
  }
  double last = 0.0;
  for (const auto& line : test::lines_of(dir / "m")) {
    const auto time_s = json::parse(line).at("time_s").get<double>();
    EXPECT_GE(time_s, last);
    last = time_s;
  }
  EXPECT_EQ(steps_in_file(dir / "m").size(), 400U);
}

TEST(MetricsWriter, WhereARunStoodAfterAStepIsBeforeTheLinesOfLaterOnes) {
  const test::TempDir dir;
  const std::string first = R"({"event":"step","time_s":1.5,"step":1}
{"event":"eval","time_s":2,"step":1}
)";
  const std::string second = R"({"event":"push","time_s":3,"step":2}
{"event":"step","time_s":3,"step":2}
)";
  const std::string change = R"({"event":"freeze","time_s":4,"step":2}
{"event":"transition","time_s":4,"step":2}
{"event":"plan","time_s":4}
)";
  const std::string third = R"({"event":"step","time_s":5,"step":3}
{"event":"resume","time_s":5,"step":3}
{"event":"plan","time_s":6}
)";
  const auto stands_after = [&](std::int64_t step) {
    const MetricsPosition position = position_after_step(dir / "m", step);
    return std::pair(position.bytes, position.time_s);
  };
  EXPECT_EQ(stands_after(1), std::pair(std::uint64_t{0}, 0.0)) << "there is no file";
  test::spill(dir / "m", first + second + R"({"event":"step","ti)");
  EXPECT_EQ(stands_after(0), std::pair(std::uint64_t{0}, 0.0));
  EXPECT_EQ(stands_after(1), std::pair(std::uint64_t{first.size()}, 2.0));
  EXPECT_EQ(stands_after(2), std::pair(std::uint64_t{first.size() + second.size()}, 3.0)) << "half a line is none";
  EXPECT_EQ(stands_after(7), stands_after(2));
  test::spill(dir / "m", first + second + change + third);
  EXPECT_EQ(stands_after(2), std::pair(std::uint64_t{first.size() + second.size()}, 3.0)) << "the change is made again";
  EXPECT_EQ(stands_after(3), std::pair(std::uint64_t{(first + second + change + third).size()}, 6.0));
}

TEST(MetricsWriter, AFolderThatIsMissingIsAStorageError) {
  const test::TempDir dir;
  EXPECT_THAT(test::error_of<StorageError>([&] { MetricsWriter(dir / "none" / "m"); }), HasSubstr("none/m"));
}

}  // namespace
}  // namespace sluice::report
