// What a report says of the workers of a parameter server: from the server's records, and from what each has told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "core/concat.h"
#include "core/text.h"
#include "report/run_report.h"
#include "support/files.h"

namespace sluice::report {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::string push_line(int worker, int examples, int staleness, double compute_s, const std::string& more = "") {
  return concat(R"({"event":"push","worker":)", worker, R"(,"examples":)", examples, R"(,"staleness":)", staleness,
                R"(,"compute_s":)", compute_s, R"(,"idle_s":0.5,"send_s":0.25,"sleep_s":0)", more, "}\n");
}

// session: null where none is told, as in records of earlier versions.
std::string process_field(const char* process_id) {
  return process_id == nullptr ? "" : concat(R"(,"session":")", process_id, '"');
}

std::string event_line(int worker, const char* what, const char* where, const char* why = "",
                       const char* process_id = nullptr) {
  return concat(R"({"event":"worker","step":7,"worker":)", worker, R"(,"what":")", what, R"(","where":")", where,
                R"(","why":")", why, '"', process_field(process_id), "}\n");
}

std::string start_line(int worker, const char* where, const char* process_id = nullptr) {
  return concat(R"({"event":"start","worker":)", worker, R"(,"where":")", where, '"', process_field(process_id), "}\n");
}

std::string own_step(double step_ms, double forward_ms, double wait_ms) {
  return concat(R"({"event":"step","step_ms":)", step_ms, R"(,"forward_ms":)", forward_ms, R"(,"idle_ms":)",
                step_ms - forward_ms, R"(,"wait_ms":)", wait_ms, R"(,"sleep_ms":1})", "\n");
}

constexpr const char* kServer =
    R"({"event":"ps","time_s":0,"policy":"asp","clock":"real","workers":2,"worker_batch":8})"
    "\n";

class WorkerReport : public testing::Test {
 protected:
  std::filesystem::path run_of(const std::string& name, const std::string& metrics) {
    std::filesystem::create_directories(dir_ / name);
    test::spill(dir_ / name / "metrics.jsonl", metrics);
    return dir_ / name;
  }
  std::filesystem::path write_records(const std::string& name, int worker, const std::string& lines) {
    std::filesystem::create_directories(dir_ / name / "workers");
    test::spill(dir_ / name / "workers" / concat(worker, ".jsonl"), lines);
    return dir_ / name;
  }
  // The run, with what is in these directories.
  RunReport report_of(const std::filesystem::path& run, const std::vector<std::filesystem::path>& dirs) {
    std::vector<RunReport> runs{read_report(run)};
    std::vector<WorkerFiles> files;
    for (const auto& dir : dirs) files.push_back(read_worker_files(dir));
    of_nobody_ = add_worker_files(runs, files);
    return runs.front();
  }

  test::TempDir dir_;
  std::vector<std::filesystem::path> of_nobody_;
};

TEST_F(WorkerReport, AWorkerIsTheSumOfItsPushesAndTheMeanOfTheirTimes) {
  const RunReport report = read_report(
      run_of("run", concat(kServer, event_line(0, "joined", "a, process 1"), event_line(1, "joined", "b, process 1"),
                           push_line(0, 8, 0, 1), push_line(0, 8, 3, 2), push_line(1, 4, 1, 4), push_line(0, 4, 0, 3),
                           event_line(1, "lost", "b, process 1", "no sign of life"),
                           event_line(1, "joined", "b, process 2"), push_line(1, 16, 2, 2, R"(,"life":2)"))));
  const auto workers = report.json().at("workers");
  ASSERT_EQ(workers.size(), 2);
  const nlohmann::ordered_json expected{
      {"worker", 0},      {"pushes", 3},        {"examples", 20},     {"share", 0.5},
      {"compute_s", 2.0}, {"idle_s", 0.5},      {"send_s", 0.25},     {"sleep_s", 0.0},
      {"staleness", 1.0}, {"staleness_max", 3}, {"joined", 1},        {"left", 0},
      {"failed", 0},      {"lost", 0},          {"trouble", nullptr}, {"own_records", nullptr}};
  EXPECT_EQ(workers[0], expected);
  EXPECT_EQ(workers[1].at("joined"), 2);
  EXPECT_EQ(workers[1].at("trouble").at("why"), "no sign of life");
  EXPECT_EQ(report.json().at("ps").at("policy"), "asp");
  EXPECT_THAT(report.text(), HasSubstr(R"(
parameter server: asp, 2 workers, 8 samples each, clock real
workers, from the server's records (means per push in seconds; compute: with stalls; staleness: in updates):
worker  pushes  examples  % of all  compute   idle   send  stall  staleness  most  joined  left  failed  lost
0            3        20      50.0    2.000  0.500  0.250  0.000       1.00     3       1     0       0     0
1            2        20      50.0    3.000  0.500  0.250  0.000       1.50     2       2     0       0     1
all          5        40     100.0    2.400  0.500  0.250  0.000       1.20     3       3     0       0     1
note: worker 1 was lost after step 7: no sign of life
)"));
}

TEST_F(WorkerReport, InVirtualTimeNobodyJoins) {
  const RunReport report = read_report(
      run_of("run", concat(R"({"event":"ps","policy":"amb","clock":"virtual","workers":1,"worker_batch":8})", "\n",
                           push_line(0, 8, 0, 1, R"(,"virtual_s":3)"))));
  EXPECT_THAT(report.text(), HasSubstr("(means per push in virtual seconds; "));
  EXPECT_THAT(report.text(), HasSubstr("staleness  most\n0            1         8     100.0"));
  EXPECT_THAT(report.text(), Not(HasSubstr("\nall "))) << "there is one";
}

TEST_F(WorkerReport, WithoutAParameterServerThereIsNothingOfIt) {
  const RunReport report = read_report(run_of("run", R"({"event":"step","step":1,"step_ms":1})"));
  EXPECT_TRUE(report.json().at("ps").is_null());
  EXPECT_TRUE(report.json().at("workers").is_null());
  EXPECT_THAT(report.text(), Not(HasSubstr("parameter server")));
}

// Of two runs with a worker 0 each, in three directories: a start is the run's whose records name its process.
TEST_F(WorkerReport, WhatAWorkerHasToldIsFoundByItsProcessWhereverItLies) {
  const auto run = run_of("run", concat(kServer, event_line(0, "joined", "a, process 1"), push_line(0, 8, 0, 1),
                                        event_line(0, "joined", "a, process 2"), push_line(0, 8, 0, 1),
                                        event_line(1, "joined", "b, process 1"), push_line(1, 8, 0, 1)));
  write_records("run", 0,
                concat(start_line(0, "a, process 1"), own_step(10, 4, 2), start_line(0, "a, process 9"),
                       own_step(1000, 1, 1), start_line(0, "a, process 2"), own_step(20, 6, 4), own_step(30, 8, 6)));
  const auto elsewhere = write_records("elsewhere", 1, concat(start_line(1, "b, process 1"), own_step(40, 10, 5)));
  const auto other = write_records("other", 1, concat(start_line(1, "c, process 1"), own_step(500, 1, 1)));
  const RunReport report = report_of(run, {run, elsewhere, other, elsewhere});
  EXPECT_THAT(of_nobody_, ElementsAre(other));
  const auto first = report.json().at("workers").at(0).at("own_records");
  EXPECT_EQ(first.at("starts"), 2);
  EXPECT_EQ(first.at("pushes"), 3);
  EXPECT_THAT(first.at("places"), ElementsAre("a, process 1", "a, process 2"));
  EXPECT_DOUBLE_EQ(first.at("means").at("step_ms"), (10 + 20 + 30) / 3.0);
  EXPECT_DOUBLE_EQ(first.at("means").at("forward_ms"), (4 + 6 + 8) / 3.0);
  EXPECT_EQ(report.json().at("workers").at(1).at("own_records").at("pushes"), 1) << "given twice, it counts once";
  EXPECT_THAT(report.text(), HasSubstr(R"(
                               load  forward  backward  transfer  allreduce  skew  optimizer  bubble  wait  stall  other   step    busy
worker 0 (3 pushes, 2 starts)     -     6.00         -         -          -     -          -       -  4.00   1.00   9.00  20.00  30.0 %
worker 1 (1 push)                 -    10.00         -         -          -     -          -       -  5.00   1.00  24.00  40.00  25.0 %
)"));
}

std::string own_steps(int count) {
  std::string lines;
  for (int i = 0; i < count; ++i) lines += own_step(10, 4, 2);
  return lines;
}

TEST_F(WorkerReport, OfAStartThatWasCopiedWhileItRanTheFullestCountsInAnyOrder) {
  const auto run = run_of("run", concat(kServer, event_line(0, "joined", "a, process 1"), push_line(0, 8, 0, 1)));
  write_records("run", 0, concat(start_line(0, "a, process 1"), own_steps(2)));
  const auto own = write_records("own", 0, concat(start_line(0, "a, process 1"), own_steps(10)));
  for (const auto& dirs : {std::vector{run, own}, std::vector{own, run}}) {
    const auto records = report_of(run, dirs).json().at("workers").at(0).at("own_records");
    EXPECT_EQ(records.at("pushes"), 10);
    EXPECT_EQ(records.at("starts"), 1);
  }
}

// Containers: their host and process are the same each time, and a worker goes on in its file.
TEST_F(WorkerReport, AStartOfAnEarlierRunWithTheSameHostAndProcessIsNotTaken) {
  const auto run = run_of("run", concat(kServer, event_line(0, "joined", "a, process 1", "", "second"),
                                        event_line(0, "joined", "a, process 1", "", "third"), push_line(0, 8, 0, 1)));
  write_records("run", 0,
                concat(start_line(0, "a, process 1", "first"), own_steps(20), start_line(0, "a, process 1", "second"),
                       own_steps(3), start_line(0, "a, process 1", "third"), own_steps(4)));
  const auto told_own = report_of(run, {run}).json().at("workers").at(0).at("own_records");
  EXPECT_EQ(told_own.at("pushes"), 7);
  EXPECT_EQ(told_own.at("starts"), 2);
  // Where one side does not tell it, host and process decide.
  const auto older = run_of("older", concat(kServer, event_line(0, "joined", "a, process 1"), push_line(0, 8, 0, 1)));
  EXPECT_EQ(report_of(older, {run}).json().at("workers").at(0).at("own_records").at("starts"), 3);
}

TEST_F(WorkerReport, DamageIsLeftOutAndSaid) {
  const auto run = run_of("run", concat(kServer, event_line(0, "joined", "a, process 1"), push_line(0, 8, 0, 1)));
  write_records("run", 0,
                concat(own_step(1, 1, 1), start_line(0, "a, process 1"), "garbage\n[1]\n", own_step(10, 4, 2),
                       R"({"event":"st)"));
  std::filesystem::create_directory(run / "workers" / "1.jsonl");
  const RunReport report = report_of(run, {run});
  EXPECT_EQ(report.json().at("workers").at(0).at("own_records").at("means").at("step_ms"), 10.0);
  EXPECT_THAT(report.text(), HasSubstr("\nnote: 3 lines of a file in workers/ cannot be read and are skipped"));
  EXPECT_THAT(report.text(), HasSubstr("\nnote: the last line of a file in workers/ is incomplete and is skipped"));
  EXPECT_THAT(report.text(), HasSubstr("1.jsonl is not a file"));
}

TEST_F(WorkerReport, NumbersThatCannotBeAreNotCounted) {
  const RunReport report = read_report(
      run_of("run", concat(kServer, push_line(0, 8, 0, 1), push_line(-1, 8, 0, 1), push_line(2'000'000, 8, 0, 1),
                           R"({"event":"push"})", "\n", R"({"event":"push","worker":"0"})", "\n",
                           R"({"event":"push","worker":0,"examples":-5,"staleness":1e300,"compute_s":"NaN"})", "\n",
                           R"({"event":"push","worker":0,"examples":1e15,"staleness":[],"compute_s":null})", "\n",
                           R"({"event":"worker","worker":0,"what":"exploded"})", "\n",
                           R"({"event":"worker","worker":0,"what":"failed","where":3,"why":{"a":1}})", "\n")));
  const auto workers = report.json().at("workers");
  ASSERT_EQ(workers.size(), 1);
  EXPECT_EQ(workers[0].at("pushes"), 3);
  EXPECT_EQ(workers[0].at("examples"), 8);
  EXPECT_EQ(workers[0].at("compute_s"), 1.0);
  EXPECT_EQ(workers[0].at("staleness_max"), 0);
  EXPECT_EQ(workers[0].at("failed"), 1);
  EXPECT_THAT(report.text(), HasSubstr("\nnote: worker 0 failed after step -\n"));
}

TEST_F(WorkerReport, NoControlCharacterReachesTheTerminal) {
  const auto run = run_of("run", concat(R"({"event":"ps","policy":"a\u001bp","clock":"\u0007"})", "\n",
                                        event_line(0, "failed", "x", "out\\u001b[2J of"), push_line(0, 8, 0, 1)));
  std::string text = report_of(run, {}).text();
  EXPECT_THAT(text, HasSubstr("out?[2J of"));
  std::erase(text, '\n');
  EXPECT_EQ(text, printable(text));
}

}  // namespace
}  // namespace sluice::report
