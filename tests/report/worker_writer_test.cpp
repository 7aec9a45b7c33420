#include "report/worker_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/files.h"

namespace sluice::report {
namespace {

using nlohmann::json;
using profiler::Part;
using profiler::SlotBreakdown;
using testing::ElementsAre;

constexpr Nanoseconds kMs = 1'000'000;

RunFacts facts() {
  RunFacts facts;
  facts.devices = {device::Device{}};
  return facts;
}

// Of two slots of a pipeline: `forward` ms on the first, twice that on the second, the rest of the step idle.
profiler::StepBreakdown breakdown(Nanoseconds step, Nanoseconds forward) {
  profiler::StepBreakdown breakdown{.step = step * kMs};
  for (const int stage : {0, 1}) {
    SlotBreakdown& slot = breakdown.slots.emplace_back(SlotBreakdown{ReplicaId{0}, DeviceId{stage}});
    slot[Part::kForward] = (stage + 1) * forward * kMs;
    slot[Part::kOther] = breakdown.step - slot[Part::kForward];
  }
  return breakdown;
}

StepStats stats(double loss, std::int64_t samples) { return {.loss = loss, .samples = samples, .targets = samples}; }

std::vector<json> lines_in(const std::filesystem::path& file) {
  std::vector<json> lines;
  for (const std::string& line : test::lines_of(file)) lines.push_back(json::parse(line));
  return lines;
}

std::vector<std::string> events_in(const std::filesystem::path& file) {
  std::vector<std::string> events;
  for (const json& line : lines_in(file)) events.push_back(line.at("event"));
  return events;
}

class WorkerWriterTest : public testing::Test {
 protected:
  WorkerWriter writer(int worker) { return {dir_ / "run", worker, {{"worker", worker}, {"where", "here, process 7"}}}; }

  test::TempDir dir_;
  std::filesystem::path file_ = dir_ / "run" / "workers" / "1.jsonl";
};

TEST_F(WorkerWriterTest, APushHasTheTimesOfItsStep) {
  {
    WorkerWriter one = writer(1);
    one.begin(facts(), {{"stages", 2}});
    WorkerPush push{.version = 4, .epoch = 2, .waited = 30 * kMs, .stalled = 20 * kMs};
    push.add(stats(1.5, 8), breakdown(100, 10));
    one.push(push);
    one.end("done");
  }
  const std::vector<json> lines = lines_in(file_);
  ASSERT_THAT(events_in(file_), ElementsAre("start", "step", "summary"));
  EXPECT_EQ(lines[0].at("where"), "here, process 7");
  EXPECT_EQ(lines[0].at("stages"), 2);
  const json& step = lines[1];
  const json expected{
      {"step", 1},       {"version", 4},     {"epoch", 2},           {"own_steps", 1},     {"loss", 1.5},
      {"samples", 8},    {"step_ms", 100.0}, {"load_ms", 0.0},       {"forward_ms", 15.0}, {"idle_ms", 85.0},
      {"wait_ms", 30.0}, {"sleep_ms", 20.0}, {"samples_per_s", 80.0}};
  for (const auto& [name, value] : expected.items()) EXPECT_EQ(step.at(name), value) << name;
  double parts = 0;
  for (const char* part :
       {"load_ms", "forward_ms", "backward_ms", "transfer_ms", "allreduce_exposed_ms", "optimizer_ms", "idle_ms"})
    parts += step.at(part).get<double>();
  EXPECT_DOUBLE_EQ(parts, 100) << "waiting and stalling are within idle_ms";
  EXPECT_EQ(lines[2].at("pushes"), 1);
  EXPECT_EQ(lines[2].at("samples"), 8);
  EXPECT_EQ(lines[2].at("breakdown").at(1).at("forward_ms"), 20.0);
}

TEST_F(WorkerWriterTest, APushOfSeveralStepsIsTheirSum) {
  {
    WorkerWriter one = writer(1);
    one.begin(facts(), {});
    WorkerPush push;
    push.add(stats(1.0, 6), breakdown(100, 10));
    push.add(stats(4.0, 2), breakdown(50, 20));
    one.push(push);
  }
  const json step = lines_in(file_).at(1);
  EXPECT_EQ(step.at("own_steps"), 2);
  EXPECT_EQ(step.at("samples"), 8);
  EXPECT_DOUBLE_EQ(step.at("loss"), (6 * 1.0 + 2 * 4.0) / 8) << "the mean over the targets";
  EXPECT_DOUBLE_EQ(step.at("step_ms"), 150);
  EXPECT_DOUBLE_EQ(step.at("forward_ms"), (15 + 30));
}

TEST_F(WorkerWriterTest, WithoutARecorderTimesAreNullButThatOfTheStep) {
  {
    WorkerWriter one = writer(1);
    one.begin(facts(), {});
    WorkerPush push{.waited = 3 * kMs};
    push.add(stats(1.0, 6), {.step = 10 * kMs});
    one.push(push);
  }
  const json step = lines_in(file_).at(1);
  EXPECT_EQ(step.at("step_ms"), 10.0);
  EXPECT_EQ(step.at("wait_ms"), 3.0);
  EXPECT_TRUE(step.at("forward_ms").is_null());
}

TEST_F(WorkerWriterTest, AWorkerThatComesBackGoesOnInItsFileAndOthersHaveTheirOwn) {
  {
    WorkerWriter killed = writer(1);
    killed.begin(facts(), {});
  }
  test::spill(file_, test::slurp(file_) + R"({"event":"st)");  // it died as it wrote
  {
    WorkerWriter again = writer(1), other = writer(0);
    again.begin(facts(), {});
    other.begin(facts(), {});
    again.end("interrupted");
  }
  EXPECT_THAT(events_in(file_), ElementsAre("start", "start", "summary"));
  EXPECT_THAT(events_in(dir_ / "run" / "workers" / "0.jsonl"), ElementsAre("start"));
}

TEST_F(WorkerWriterTest, AFailureBeforeThereIsAPlanIsOfItsOwnStart) {
  writer(1).fail(OutOfMemoryError("it does not fit"));
  const std::vector<json> lines = lines_in(file_);
  ASSERT_THAT(events_in(file_), ElementsAre("start", "fault"));
  EXPECT_EQ(lines[0].at("worker"), 1);
  EXPECT_EQ(lines[1].at("what"), "it does not fit");
  EXPECT_EQ(lines[1].at("exit_code"), 4);
}

TEST_F(WorkerWriterTest, AFolderThatCannotBeMadeIsAStorageError) {
  test::spill(dir_ / "run", "a file");
  EXPECT_EQ(test::error_of<StorageError>([&] { writer(1); }).empty(), false);
}

TEST_F(WorkerWriterTest, AFullDiskDropsLinesWithOneWarning) {
  std::filesystem::create_directories(file_.parent_path());
  std::filesystem::create_symlink("/dev/full", file_);
  testing::internal::CaptureStderr();
  {
    WorkerWriter one = writer(1);
    one.begin(facts(), {});
    for (int i = 0; i < 3; ++i) {
      WorkerPush push;
      push.add(stats(1.0, 6), breakdown(10, 1));
      one.push(push);
    }
    one.end("done");
  }
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, testing::HasSubstr("No space left on device; training continues without these records"));
  EXPECT_EQ(log.find("cannot write"), log.rfind("cannot write")) << log;
  EXPECT_THAT(log, testing::HasSubstr("5 records were dropped"));
}

}  // namespace
}  // namespace sluice::report
