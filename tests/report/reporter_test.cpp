#include "report/reporter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/files.h"
#include "task/task.h"

namespace sluice::report {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Two epochs of three batches; standard error is captured, so it is no terminal.
class ReporterTest : public testing::Test {
 protected:
  ReporterTest() {
    facts_.total_steps = 6;
    facts_.devices = {device::Device{}};
    facts_.scores = task::make_classification()->scores();
  }

  StepRecord step(std::int64_t number, double loss, std::int64_t targets, std::int64_t right, bool evaluated) const {
    StepRecord record{.step = number,
                      .epoch = (number - 1) / 3,
                      .batch = (number - 1) % 3,
                      .batches = 3,
                      .lr = 0.1,
                      .evaluation_follows = evaluated};
    record.stats = {.loss = loss,
                    .samples = targets,
                    .targets = targets,
                    .scores = ScoreSums{.loss_sum = loss * static_cast<double>(targets),
                                        .targets = targets,
                                        .sums = {static_cast<double>(right), static_cast<double>(targets)}}};
    record.breakdown.step = 1'000'000'000;
    return record;
  }

  std::string log_of(const auto& action) {
    const storage::RunDir run_dir(dir_ / "run", storage::RunDirMode::kResumeOrNew);
    testing::internal::CaptureStderr();
    {
      Reporter reporter(run_dir, {.csv = true}, {});
      reporter.plan(facts_, {});
      action(reporter);
    }
    return testing::internal::GetCapturedStderr();
  }

  std::vector<nlohmann::json> events(const std::string& name) const {
    std::vector<nlohmann::json> found;
    for (const std::string& line : test::lines_of(dir_ / "run" / "metrics.jsonl")) {
      const auto event = nlohmann::json::parse(line);
      if (event.at("event") == name) found.push_back(event);
    }
    return found;
  }

  test::TempDir dir_;
  RunFacts facts_;
};

TEST_F(ReporterTest, AnEpochEndsWithOneSummaryOfAllItsStepsWithTheEvaluationThatFollows) {
  const std::string text = log_of([&](Reporter& reporter) {
    reporter.step(step(1, 2.0, 8, 1, false), {}, false);
    reporter.step(step(2, 1.0, 8, 2, false), {}, true);
    reporter.step(step(3, 0.5, 4, 3, true), {}, false);
    reporter.eval({.step = 3, .epoch = 0, .scores = {.loss_sum = 8, .targets = 10, .sums = {5, 9}}, .seconds = 1});
    reporter.step(step(4, 0.25, 8, 8, true), {}, false);
    reporter.eval({.step = 4, .epoch = 1, .scores = {.loss_sum = 4, .targets = 10, .sums = {5, 9}}, .seconds = 1});
    reporter.step(step(5, 0.25, 8, 8, false), {}, false);
    reporter.step(step(6, 0.5, 4, 2, false), {}, true);
    reporter.summary("done", 6);
  });
  // (16 + 8 + 2) / 20 and 6 of 20; (2 + 2 + 2) / 20 and 18 of 20.
  EXPECT_THAT(text,
              AllOf(HasSubstr(" epoch 1 of 2: train loss 1.3000, top-1 30.00 %; validation loss 0.8000, top-1 "
                              "50.00 %, top-5 90.00 %; 4.0 s\n"),
                    HasSubstr(" evaluation after step 4/6: validation loss 0.4000, "),
                    HasSubstr(" epoch 2 of 2: train loss 0.3000, top-1 90.00 %; 3.0 s\n"),
                    HasSubstr(" done after step 6/6: train loss 0.3000; validation loss 0.4000, top-1 50.00 %, ")));
  EXPECT_THAT(text, HasSubstr(" step 2/6  loss 1.5000  lr 0.1  8.0 samples/s  ETA 0:04\n")) << "mean of two steps";
  EXPECT_THAT(text, HasSubstr(" step 6/6  loss 0.3333  lr 0.1  6.0 samples/s  ETA 0:00\n")) << "mean of the four since";
  EXPECT_THAT(text, AllOf(Not(HasSubstr("\x1b")), Not(HasSubstr("\r")))) << "no terminal";
  EXPECT_THAT(text, Not(HasSubstr("sample_num_throughput")));
  const auto epochs = events("epoch");
  ASSERT_EQ(epochs.size(), 2);
  EXPECT_EQ(epochs[0].at("loss"), 1.3);
  EXPECT_EQ(epochs[0].at("top1"), 30.0);
  EXPECT_EQ(epochs[0].at("steps"), 3);
  EXPECT_EQ(epochs[1].at("epoch"), 1);
  EXPECT_FALSE(epochs[1].contains("perplexity"));
}

TEST_F(ReporterTest, ARunThatIsStoppedBeforeItsEvaluationStillTellsTheEpoch) {
  const std::string text = log_of([&](Reporter& reporter) {
    reporter.step(step(3, 0.5, 4, 3, true), {}, false);
    reporter.summary("interrupted", 3);
  });
  EXPECT_THAT(text, HasSubstr(" epoch 1 of 2 (batches 3 to 3 of 3): train loss 0.5000, top-1 75.00 %; 1.0 s\n"));
  EXPECT_THAT(text, HasSubstr(" interrupted after step 3/6: train loss 0.5000; 4.0 samples/s; "));
}

// Its gradients were dropped, maybe because they are no numbers.
TEST_F(ReporterTest, AStepThatWasSkippedHasNoPartInAMeanLoss) {
  StepRecord skipped = step(2, std::numeric_limits<double>::quiet_NaN(), 8, 0, false);
  skipped.stats.skipped = true;
  const std::string text = log_of([&](Reporter& reporter) {
    reporter.step(step(1, 2.0, 8, 1, false), {}, false);
    reporter.step(skipped, {}, false);
    reporter.step(step(3, 1.0, 8, 3, true), {}, true);
    reporter.summary("interrupted", 3);
  });
  EXPECT_THAT(text, HasSubstr(" step 3/6  loss 1.5000  "));
  EXPECT_THAT(text, HasSubstr(" epoch 1 of 2: train loss 1.5000, top-1 25.00 %; 3.0 s\n"));
  const auto steps = events("step");
  ASSERT_EQ(steps.size(), 3);
  EXPECT_TRUE(steps[1].at("skipped"));
  EXPECT_FALSE(steps[0].contains("skipped"));
}

TEST_F(ReporterTest, TheNineLinesComeWhereTheyAreAskedFor) {
  facts_.logs_full_lines = true;
  const std::string text = log_of([&](Reporter& reporter) { reporter.step(step(1, 2.0, 8, 1, false), {}, true); });
  EXPECT_THAT(text, AllOf(HasSubstr(" sample_num_throughput (images/second): 8\n"),
                          HasSubstr(" epoch = 0, batch index = 0/3\n"), HasSubstr(" step 1/6  loss 2.0000")));
}

TEST_F(ReporterTest, PerplexityIsBesideTheLossInEveryRecord) {
  facts_.is_text = true;
  facts_.scores = task::make_language_model()->scores();
  log_of([&](Reporter& reporter) {
    reporter.step(step(3, 0.5, 4, 3, true), {}, false);
    reporter.eval({.step = 3, .epoch = 0, .scores = {.loss_sum = 10, .targets = 10, .sums = {5, 9}}, .seconds = 1});
    reporter.summary("done", 3);
  });
  for (const char* const name : {"eval", "summary"}) {
    ASSERT_EQ(events(name).size(), 1) << name;
    EXPECT_DOUBLE_EQ(events(name)[0].at("perplexity"), std::exp(1.0)) << name;
  }
  EXPECT_DOUBLE_EQ(events("epoch").at(0).at("perplexity"), std::exp(0.5));
}

TEST_F(ReporterTest, APlanThatChangesInTheRunBringsOtherFactsAndSlots) {
  const auto on_devices = [&](std::int64_t number, int devices, Nanoseconds forward) {
    StepRecord record = step(number, 1.0, 8, 1, false);
    record.breakdown.step = number * 1'000'000'000;
    for (int device = 0; device < devices; ++device) {
      profiler::SlotBreakdown slot{.replica = ReplicaId{0}, .device = DeviceId{device}};
      slot.parts[static_cast<std::size_t>(profiler::Part::kForward)] = forward;
      record.breakdown.slots.push_back(slot);
    }
    return record;
  };
  nlohmann::json summary;
  log_of([&](Reporter& reporter) {
    reporter.step(on_devices(1, 1, 4'000'000), {}, false);
    RunFacts more = facts_;
    more.plan.partition = {{1, 1, 1}};
    more.replicas = 3;
    reporter.plan(more, {{"stages", 3}});
    reporter.step(on_devices(2, 3, 2'000'000), {}, false);
    summary = reporter.summary("interrupted", 2);
  });
  EXPECT_EQ(events("plan").size(), 2U);
  EXPECT_EQ(events("step").at(0).at("replicas"), 1);
  EXPECT_EQ(events("step").at(1).at("replicas"), 3);
  EXPECT_EQ(events("step").at(1).at("stages"), 3);
  ASSERT_EQ(summary.at("breakdown").size(), 3U);
  EXPECT_EQ(summary.at("breakdown").at(0).at("forward_ms"), 3.0) << "the mean over the two steps it ran in";
  EXPECT_EQ(summary.at("breakdown").at(2).at("forward_ms"), 2.0) << "of the one";
  EXPECT_EQ(summary.at("breakdown").at(0).at("steps"), 2);
  EXPECT_EQ(summary.at("breakdown").at(2).at("steps"), 1);
  EXPECT_EQ(summary.at("breakdown").at(0).at("step_ms"), 1500.0) << "of the same steps";
  EXPECT_EQ(summary.at("breakdown").at(2).at("step_ms"), 2000.0);
  EXPECT_EQ(test::lines_of(dir_ / "run" / "metrics.csv").size(), 3U);
}

// Two stages of forward 10 ms and backward 20 ms a micro-batch, each as often longer as is said.
StepSpans spans_of_stages(int longer) {
  StepSpans spans;
  for (int stage = 0; stage < 2; ++stage) {
    const Nanoseconds forward = longer * 10'000'000;
    spans.slots.push_back({.replica = ReplicaId{0},
                           .device = DeviceId{stage},
                           .stages = {StageId{stage}},
                           .spans = {{Phase::kForward, MicroBatchId{0}, 0, forward, StageId{stage}},
                                     {Phase::kBackward, MicroBatchId{0}, forward, 3 * forward, StageId{stage}}}});
  }
  return spans;
}

TEST_F(ReporterTest, WhatWasPredictedStandsBesideTheStepsOfTheLastPlanWithoutItsFirst) {
  facts_.plan = {.partition = {{1, 1}}, .schedule = "gpipe"};
  facts_.memory = {{"cpu:0", 100}};
  const auto run = [&](Reporter& reporter, int steps, int slow) {
    for (int i = 0; i < steps; ++i) {
      StepRecord record = step(1, 1.0, 8, 1, false);
      record.breakdown.step = (i < slow ? 5 : 1) * 100'000'000;
      record.breakdown.slots.resize(2, profiler::SlotBreakdown{.replica = ReplicaId{0}, .device = DeviceId{0}});
      record.breakdown.slots[1].device = DeviceId{1};
      reporter.step(record, spans_of_stages(i < slow ? 5 : 1), false);
    }
  };
  (void)log_of([&](Reporter& reporter) {
    reporter.prediction({.step_s = 0.09, .by = kByProfile, .device_bytes = {{"cpu:0", 110}}});
    run(reporter, 3, 3);
    const auto first = reporter.summary("interrupted", 3).at("predicted");
    EXPECT_NEAR(first.at("error"), 0.09 / 0.5 - 1, 1e-9) << "there are no others";
    EXPECT_NEAR(first.at("by_stages_ms"), 5 * 2 * 30, 1e-9);
    run(reporter, 4, 2);
    const auto settled = reporter.summary("interrupted", 7);
    EXPECT_NEAR(settled.at("step_ms_of_last_plan"), 100, 1e-9) << "five are left out";
    EXPECT_NEAR(settled.at("predicted").at("error"), -0.1, 1e-9);
    EXPECT_NEAR(settled.at("predicted").at("by_stages_ms"), 2 * 30, 1e-9) << "one stage after the other";
    EXPECT_NEAR(settled.at("predicted").at("memory_error"), 0.1, 1e-9);

    reporter.plan(facts_, {});
    run(reporter, 1, 1);
    const auto unknown = reporter.summary("interrupted", 8);
    EXPECT_FALSE(unknown.at("predicted").contains("step_ms")) << "that was of the plan before";
    EXPECT_NEAR(unknown.at("step_ms_of_last_plan"), 500, 1e-9);
    EXPECT_NEAR(unknown.at("predicted").at("by_stages_ms"), 5 * 2 * 30, 1e-9);
    reporter.prediction({.step_s = 0.4, .by = kByProfile, .device_bytes = {{"cpu:0", 110}}});
    const auto second = reporter.summary("interrupted", 8).at("predicted");
    EXPECT_NEAR(second.at("error"), -0.2, 1e-9);
    EXPECT_FALSE(second.contains("memory_error")) << "the peak may be of the plan before";
    run(reporter, 5, 5);
    const auto last = reporter.summary("interrupted", 13).at("predicted");
    EXPECT_NEAR(last.at("by_stages_ms"), 5 * 2 * 30, 1e-9) << "of the sixth step of this plan";
  });
}

// Advice is of the last steps, the table is of all: both say so.
TEST_F(ReporterTest, AdviceAndTableSayOfWhichStepsTheySpeak) {
  const auto run = [&](int steps, bool is_resumed) {
    return log_of([&](Reporter& reporter) {
      for (int i = 0; i < steps; ++i) {
        StepRecord record = step(1, 1.0, 8, 1, false);
        record.breakdown.slots.push_back({.replica = ReplicaId{0}, .device = DeviceId{0}});
        record.breakdown.slots[0][profiler::Part::kLoad] = i < 5 ? 0 : record.breakdown.step / 2;
        reporter.step(record, {}, false);
      }
      EXPECT_EQ(reporter.summary("interrupted", is_resumed ? steps + 9 : steps).at("advice_steps"), steps - 5);
    });
  };
  const std::string text = run(12, false);
  EXPECT_THAT(text, HasSubstr("where the time went, mean of all 12 steps ("));
  EXPECT_THAT(text, HasSubstr(" advice, from the last 7 steps: the step waits 500.0 ms of 1000.0 ms"));
  EXPECT_THAT(run(11, true), HasSubstr("where the time went, mean of 11 steps since the resume ("));
}

// Ten steps of 10 s, an evaluation of 5 s, a checkpoint of 2 s; then another plan, whose steps take 1 s.
TEST_F(ReporterTest, TheTimeLeftIsOfThePresentPlanWithEvaluationsAndCheckpoints) {
  constexpr Nanoseconds kSecond = 1'000'000'000;
  facts_.total_steps = 100;
  const auto eta_of = [&](std::int64_t number, Nanoseconds duration, const RemainingWork& remaining) {
    return [=, this](Reporter& reporter) {
      StepRecord record = step(number, 1.0, 8, 1, false);
      record.breakdown.step = duration;
      record.remaining = remaining;
      reporter.step(record, {}, true);
    };
  };
  const std::string text = log_of([&](Reporter& reporter) {
    for (int i = 1; i <= 10; ++i) eta_of(i, 10 * kSecond, {})(reporter);
    reporter.outside_of_steps(
        {{Phase::kEvaluation, MicroBatchId{0}, 0, 5 * kSecond}, {Phase::kCheckpoint, MicroBatchId{0}, 0, 2 * kSecond}});
    eta_of(11, 10 * kSecond, {.evaluations = 3, .checkpoints = 4})(reporter);
    reporter.plan(facts_, {});
    eta_of(12, 4 * kSecond, {.evaluations = 3})(reporter);
    for (int i = 13; i <= 17; ++i) eta_of(i, i < 17 ? 4 * kSecond : kSecond, {.evaluations = 3})(reporter);
    eta_of(18, kSecond, {.evaluations = 1, .checkpoint_interval_s = 20})(reporter);
  });
  EXPECT_THAT(text, HasSubstr(" step 10/100  loss 1.0000  lr 0.1  0.8 samples/s  ETA 15:00\n"));
  EXPECT_THAT(text, HasSubstr(" step 11/100  loss 1.0000  lr 0.1  0.8 samples/s  ETA 15:13\n")) << "890 + 15 + 8";
  EXPECT_THAT(text, HasSubstr(" step 12/100  loss 1.0000  lr 0.1  2.0 samples/s  ETA 6:07\n")) << "88 * 4 + 15";
  EXPECT_THAT(text, HasSubstr(" step 17/100  loss 1.0000  lr 0.1  8.0 samples/s  ETA 1:38\n")) << "83 + 15";
  EXPECT_THAT(text, HasSubstr(" step 18/100  loss 1.0000  lr 0.1  8.0 samples/s  ETA 1:35\n")) << "82 + 5 + 4 * 2";
}

// A resumed run knows no time of an evaluation until it has made one.
TEST_F(ReporterTest, TheTimeLeftSaysThatItLacksEvaluationsUntilOneIsMade) {
  const std::string text = log_of([&](Reporter& reporter) {
    const auto step_with = [&](std::int64_t number, std::int64_t evaluations) {
      StepRecord record = step(number, 1.0, 8, 1, false);
      record.remaining = {.evaluations = evaluations};
      reporter.step(record, {}, true);
    };
    step_with(1, 2);
    reporter.outside_of_steps({{Phase::kEvaluation, MicroBatchId{0}, 0, 5'000'000'000}});
    step_with(2, 1);
  });
  EXPECT_THAT(text, HasSubstr(" step 1/6  loss 1.0000  lr 0.1  8.0 samples/s  ETA (without evaluations) 0:05\n"));
  EXPECT_THAT(text, HasSubstr(" step 2/6  loss 1.0000  lr 0.1  8.0 samples/s  ETA 0:09\n")) << "4 + 5";
}

TEST_F(ReporterTest, WhatPushesAreMadeOfNoStageOfThisProcessSays) {
  facts_.plan = {.partition = {{1, 1}}, .schedule = "gpipe"};
  facts_.by_pushes = true;
  (void)log_of([&](Reporter& reporter) {
    StepRecord record = step(1, 1.0, 8, 1, false);
    record.breakdown.slots.push_back({.replica = ReplicaId{0}, .device = DeviceId{0}});
    reporter.step(record, spans_of_stages(1), false);
    EXPECT_TRUE(reporter.summary("interrupted", 1).at("predicted").is_null());
  });
}

// One step of a second on one device, and one of two seconds on three of four times the memory for parameters.
TEST_F(ReporterTest, UtilisationAndPeaksAreOfAllPlansOfTheRun) {
  nlohmann::json summary;
  facts_.peak_flops = 1e6;
  const std::string text = log_of([&](Reporter& reporter) {
    const auto run = [&](std::int64_t number, RunFacts facts, int devices, std::uint64_t parameters) {
      facts.devices.resize(static_cast<std::size_t>(devices));
      facts.memory = {{"parameters", parameters}, {"gradients", 1000 / parameters}};
      reporter.plan(facts, {});
      StepRecord record = step(number, 1.0, 8, 1, false);
      record.breakdown.step = number * 1'000'000'000;
      record.stats.flops[0] = 700'000;
      reporter.step(record, {}, false);
    };
    run(1, facts_, 1, 10);
    run(2, facts_, 3, 40);
    run(3, facts_, 1, 20);
    summary = reporter.summary("interrupted", 3);
  });
  // 2.1 of 1 + 2 x 3 + 3 million FLOPs.
  EXPECT_DOUBLE_EQ(summary.at("mfu"), 0.21);
  EXPECT_DOUBLE_EQ(events("step").at(1).at("mfu"), 0.7 / 6);
  EXPECT_THAT(text, HasSubstr("21.0 % of"));
  EXPECT_EQ(summary.at("peak_memory_bytes").at("parameters"), 40);
  EXPECT_EQ(summary.at("peak_memory_bytes").at("gradients"), 100);
}

TEST_F(ReporterTest, UtilisationIsOfTheDevicesOfAllProcesses) {
  facts_.devices.resize(3);
  facts_.processes = 2;
  facts_.peak_flops = 1e6;
  nlohmann::json summary;
  (void)log_of([&](Reporter& reporter) {
    StepRecord record = step(1, 1.0, 8, 1, false);  // of a second
    record.stats.flops[0] = 600'000;
    reporter.step(record, {}, false);
    summary = reporter.summary("interrupted", 1);
  });
  EXPECT_DOUBLE_EQ(summary.at("mfu"), 0.1);
  EXPECT_DOUBLE_EQ(events("step").at(0).at("mfu"), 0.1);
}

TEST_F(ReporterTest, APeakStaysThoughALaterPlanHasNothingOfItsKind) {
  facts_.memory = {{"parameters", 10}, {"gradients", 20}};
  (void)log_of([&](Reporter& reporter) {
    RunFacts facts = facts_;
    facts.memory = {{"parameters", 15}};
    reporter.plan(facts, {});
    const nlohmann::json summary = reporter.summary("interrupted", 0);
    EXPECT_EQ(summary.at("peak_memory_bytes").at("parameters"), 15);
    EXPECT_EQ(summary.at("peak_memory_bytes").at("gradients"), 20);
  });
}

}  // namespace
}  // namespace sluice::report
