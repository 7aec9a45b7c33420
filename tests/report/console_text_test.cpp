#include "report/console_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "task/task.h"

namespace sluice::report {
namespace {

using profiler::Part;
using profiler::SlotBreakdown;
using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

RunFacts facts() {
  RunFacts facts;
  facts.total_steps = 2814;
  facts.sync_bytes = 312192;
  facts.devices = {device::Device{}};
  facts.spans_machines = true;
  facts.scores = task::make_classification()->scores();
  return facts;
}

// A step of 100 ms: load 2, forward 30, backward 50, optimizer 4, all-reduce 6 and waiting for it 3, other 5.
StepRecord record_of_step() {
  SlotBreakdown slot;
  slot[Part::kLoad] = 2'000'000;
  slot[Part::kForward] = 28'000'000;
  slot[Part::kLoss] = 2'000'000;
  slot[Part::kBackward] = 50'000'000;
  slot[Part::kOptimizer] = 4'000'000;
  slot[Part::kAllReduce] = 6'000'000;
  slot[Part::kSkew] = 3'000'000;
  slot[Part::kOther] = 5'000'000;
  slot.all_reduce = 21'123'456;
  StepRecord record{.step = 120, .epoch = 0, .batch = 8, .batches = 391};
  record.stats = {.loss = 0.43214, .samples = 64, .targets = 64};
  record.lr = 0.05;
  record.breakdown.step = 100'000'000;
  record.breakdown.slots = {slot};
  return record;
}

// Word by word what PipeTransformer's users have in their notes: "epoch = 0, batch index = 8/391".
TEST(FullLines, AreTheNineLinesInTheWordsOfTheNotes) {
  EXPECT_EQ(full_lines(record_of_step(), facts(), 1234567.9),
            "data loading time cost (ms) by device event 2.000000\n"
            "forward time cost (ms) by device event 30.000000\n"
            "backwards time cost: (ms) by device event 50.000000\n"
            "all-reduce time cost (ms) by device event 21.123456, exposed 9.000000, of it waiting for the slowest "
            "3.000000\n"
            "sample_num_throughput (images/second): 640\n"
            "communication frequency (cross machine sync/second): 10.000000\n"
            "size_params_ddp_sum: 312192.000000\n"
            "network bandwidth (bytes/second): 1234567\n"
            "epoch = 0, batch index = 8/391");
  RunFacts of_server = facts();
  of_server.by_pushes = true;
  EXPECT_THAT(full_lines(record_of_step(), of_server, {}),
              AllOf(HasSubstr("sync/second): not known\n"), HasSubstr("size_params_ddp_sum: not known\n")));
}

TEST(FullLines, NameTheClockOfTheGpu) {
  RunFacts on_gpu = facts();
  on_gpu.devices = {device::Device{.kind = device::DeviceKind::kCuda, .index = 0}};
  const std::string lines = full_lines(record_of_step(), on_gpu, 0);
  EXPECT_THAT(lines, AllOf(HasSubstr("data loading time cost (ms) by CUDA event 2.000000\n"),
                           HasSubstr("forward time cost (ms) by CUDA event 30.000000\n"),
                           HasSubstr("backwards time cost: (ms) by CUDA event 50.000000\n"),
                           HasSubstr("all-reduce time cost (ms) by CUDA event 21.123456"), Not(HasSubstr("device"))));
}

TEST(FullLines, CountWholeImagesAndSyncsBetweenMachinesOnly) {
  StepRecord record = record_of_step();
  record.breakdown.step = 73'000'000;
  EXPECT_THAT(full_lines(record, facts(), 0),
              AllOf(HasSubstr("\nsample_num_throughput (images/second): 876\n"),  // 876.7
                    HasSubstr("\ncommunication frequency (cross machine sync/second): 13.698630\n")));
  RunFacts one_machine = facts();
  one_machine.spans_machines = false;
  EXPECT_THAT(full_lines(record, one_machine, 0),
              AllOf(HasSubstr("\ncommunication frequency (cross machine sync/second): 0.000000\n"),
                    HasSubstr("\nsize_params_ddp_sum: 312192.000000\n")));
}

TEST(FullLines, SayWhatIsNotKnownAndLeaveOutTimesThatNobodyTook) {
  StepRecord record = record_of_step();
  record.breakdown.slots.clear();
  EXPECT_EQ(full_lines(record, facts(), std::nullopt),
            "sample_num_throughput (images/second): 640\n"
            "communication frequency (cross machine sync/second): 10.000000\n"
            "size_params_ddp_sum: 312192.000000\n"
            "network bandwidth (bytes/second): not known yet\n"
            "epoch = 0, batch index = 8/391");
}

StepSums sums_of(const std::vector<StepRecord>& records) {
  StepSums sums;
  for (const StepRecord& record : records) sums.add(record);
  return sums;
}

TEST(IntervalLine, TellsLossRateTimeLeftAndWhereTheTimeWent) {
  const StepRecord record = record_of_step();
  const std::string line = interval_line(sums_of({record}), record, facts(), {192.4});
  EXPECT_EQ(line,
            "step 120/2814  loss 0.4321  lr 0.05  640 samples/s  ETA 3:12  backward 50 %  forward 30 %  "
            "allreduce 6 %  other 5 %  optimizer 4 %  skew 3 %  load 2 %");
}

TEST(IntervalLine, IsTheMeanSinceTheLastLine) {
  StepRecord first = record_of_step(), second = record_of_step();
  first.stats = {.loss = 1.0, .samples = 10, .targets = 10};
  second.stats = {.loss = 2.0, .samples = 30, .targets = 30};
  second.breakdown.step = 300'000'000;
  second.breakdown.slots[0] = {};
  const std::string line = interval_line(sums_of({first, second}), second, facts(), {0});
  EXPECT_THAT(line, HasSubstr("  loss 1.7500  ")) << "(10 * 1 + 30 * 2) / 40";
  EXPECT_THAT(line, HasSubstr("  100 samples/s  ")) << "40 in 0.4 s";
  EXPECT_THAT(line, EndsWith("  ETA 0:00  other 76 %  backward 12 %  forward 8 %  allreduce 2 %  optimizer 1 %"))
      << "of 400 ms, and nothing below 1 %";
}

TEST(IntervalLine, CountsTokensOfTextsAndTellsNoTimesWhereNoneWereTaken) {
  RunFacts text = facts();
  text.is_text = true;
  StepRecord record = record_of_step();
  record.stats.targets = 64 * 128;
  record.breakdown.slots.clear();
  EXPECT_EQ(interval_line(sums_of({record}), record, text, {3723}),
            "step 120/2814  loss 0.4321  lr 0.05  81920 tokens/s  ETA 1:02:03");
}

TEST(IntervalLine, NamesWhatIsNoNumber) {
  StepRecord record = record_of_step();
  record.stats.loss = -std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(interval_line(sums_of({record}), record, facts(), {std::nan("")}),
              AllOf(HasSubstr("  loss NaN  "), HasSubstr("  ETA ?  ")));
}

TEST(ProgressLine, BeginsWithWhatANarrowTerminalMustShow) {
  EXPECT_EQ(progress_text(record_of_step(), facts(), 98.76, {5}),
            "step 120/2814  loss 0.4321  ETA 0:05  98.8 samples/s  epoch 1 of 7");
  EXPECT_EQ(progress_text(record_of_step(), facts(), 98.76, {.seconds = 5, .lacks_evaluations = true}),
            "step 120/2814  loss 0.4321  ETA 0:05  98.8 samples/s  epoch 1 of 7  ETA without evaluations");
}

// Two steps by hand: (4 * 1.5 + 2 * 0.75) / 6 = 1.25; 3 of 6 right.
TEST(EpochLine, IsTheMeanOverAllTargetsOfTheEpoch) {
  RunFacts of_run = facts();
  of_run.total_steps = 10;
  StepRecord first{.step = 5, .epoch = 2, .batch = 0, .batches = 2},
      second{.step = 6, .epoch = 2, .batch = 1, .batches = 2};
  first.stats = {.loss = 1.5, .samples = 4, .targets = 4, .scores = ScoreSums{.targets = 4, .sums = {1, 4}}};
  second.stats = {.loss = 0.75, .samples = 2, .targets = 2, .scores = ScoreSums{.targets = 2, .sums = {2, 2}}};
  first.breakdown.step = second.breakdown.step = 6'000'000'000;
  const StepSums sums = sums_of({first, second});
  EXPECT_EQ(epoch_line(sums, second, nullptr, of_run), "epoch 3 of 5: train loss 1.2500, top-1 50.00 %; 12.0 s");
  const EvalRecord evaluation{
      .step = 6, .epoch = 2, .scores = {.loss_sum = 20, .targets = 50, .sums = {43, 50}}, .seconds = 0.3};
  EXPECT_EQ(epoch_line(sums, second, &evaluation, of_run),
            "epoch 3 of 5: train loss 1.2500, top-1 50.00 %; validation loss 0.4000, top-1 86.00 %, top-5 100.00 %; "
            "12.3 s");
}

// 4 epochs of 2 batches before a resume with other data, of which an epoch has 4; 2 more epochs.
TEST(EpochLine, CountsEpochsThatHadAnotherNumberOfBatches) {
  RunFacts of_run = facts();
  of_run.total_steps = 16;
  const StepRecord record{.step = 12, .epoch = 4, .batch = 3, .batches = 4};
  EXPECT_THAT(epoch_line(sums_of({record}), record, nullptr, of_run), testing::StartsWith("epoch 5 of 6 "));
  EXPECT_THAT(progress_text(record, of_run, 1, {1}), testing::EndsWith("epoch 5 of 6"));
}

TEST(EpochLine, SaysWhichBatchesItIsOfWhereThatIsNotAll) {
  StepRecord record = record_of_step();
  EXPECT_THAT(epoch_line(sums_of({record}), record, nullptr, facts()),
              testing::StartsWith("epoch 1 of 7 (batches 9 to 9 of 391): train loss 0.4321; "));
}

TEST(Texts, OfLanguageModelsHaveThePerplexityBesideTheLoss) {
  RunFacts text = facts();
  text.is_text = true;
  text.scores = task::make_language_model()->scores();
  const EvalRecord evaluation{.step = 120, .scores = {.loss_sum = 30, .targets = 10, .sums = {1, 2}}, .seconds = 2};
  EXPECT_EQ(
      evaluation_line(evaluation, text),
      "evaluation after step 120/2814: validation loss 3.0000, perplexity 20.09, top-1 10.00 %, top-5 20.00 %; 2.0 s");
  StepRecord record = record_of_step();
  EXPECT_THAT(epoch_line(sums_of({record}), record, nullptr, text),
              HasSubstr(": train loss 0.4321, perplexity 1.54; "));
}

TEST(ResultLine, SaysWhatTheRunCameTo) {
  const EvalRecord evaluation{.scores = {.loss_sum = 20, .targets = 50, .sums = {43, 50}}};
  EXPECT_EQ(result_line({"done", 2814, 252, "runs/mine"}, 0.25, evaluation, 712.4, facts()),
            "done after step 2814/2814: train loss 0.2500; validation loss 0.4000, top-1 86.00 %, top-5 100.00 %; "
            "712 samples/s; 4 min 12 s; runs/mine");
  EXPECT_EQ(result_line({"interrupted", 3, 1, "r"}, std::nullopt, std::nullopt, 7.25, facts()),
            "interrupted after step 3/2814: 7.2 samples/s; 1.0 s; r");
}

TEST(ClockText, IsThatOfAClock) {
  EXPECT_EQ(clock_text(0), "0:00");
  EXPECT_EQ(clock_text(59.6), "1:00");
  EXPECT_EQ(clock_text(3599), "59:59");
  EXPECT_EQ(clock_text(360000), "100:00:00");
  EXPECT_EQ(clock_text(-1), "?");
  EXPECT_EQ(clock_text(std::numeric_limits<double>::infinity()), "?");
}

}  // namespace
}  // namespace sluice::report
