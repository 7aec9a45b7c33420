// The real session on a library that plays a device's records back (played_cupti.h).
#include "profiler/cupti/session.h"

#include <cupti.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "profiler/arbiter.h"
#include "profiler/breakdown.h"
#include "profiler/cupti/played_cupti.h"
#include "profiler/cupti/sequence_kernels.h"
#include "profiler/cupti/step_kernels.h"
#include "profiler/gpu_repeat_timing.h"

namespace sluice::cupti {
namespace {

using profiler::Part;
using testing::HasSubstr;

constexpr std::uint64_t kStream = 7;

class CuptiSession : public testing::Test {
 protected:
  void SetUp() override { played_reset(); }

  std::unique_ptr<Session> start(SessionOptions options = {}) {
    options.library = PLAYED_CUPTI;
    return Session::start(options, why);
  }

  std::string why;
};

template <typename Record>
void play(const Record& record) {
  played_record(&record, sizeof(record));
}

void play_launch(std::uint32_t correlation, Nanoseconds at, Tag tag) {
  CUpti_ActivityExternalCorrelation external{};
  external.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
  external.externalKind = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2;
  external.externalId = tag;
  external.correlationId = correlation;
  if (tag != kNoTag) play(external);
  CUpti_ActivityAPI call{};
  call.kind = CUPTI_ACTIVITY_KIND_RUNTIME;
  call.start = static_cast<std::uint64_t>(at);
  call.end = call.start + 1;
  call.correlationId = correlation;
  call.threadId = 123;
  play(call);
}

void play_kernel(std::uint32_t correlation, Nanoseconds begin, Nanoseconds end, const char* name = "_Z4gemmPf") {
  CUpti_ActivityKernel10 kernel{};
  kernel.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  kernel.start = static_cast<std::uint64_t>(begin);
  kernel.end = static_cast<std::uint64_t>(end);
  kernel.streamId = kStream;
  kernel.correlationId = correlation;
  kernel.name = name;
  play(kernel);
}

// One slot whose forward's calls ran in [10, 50).
StepSpans host_step() {
  return {.begin = 0,
          .end = 1000,
          .slots = {{ReplicaId{0},
                     DeviceId{0},
                     {StageId{0}},
                     {{Phase::kForward, MicroBatchId{0}, 0, 900, StageId{0}, 10, 50}},
                     {.gpu = 0, .handle = kStream}}}};
}

TEST_F(CuptiSession, PlayedRecordsBecomeTheBreakdownAfterTheFirstStep) {
  StepKernels steps(start());
  play_launch(1, 20, kNoTag);
  play_kernel(1, 100, 900);
  const StepSpans first = steps.attributed(host_step());
  EXPECT_EQ(profiler::break_down(first).slots.at(0)[Part::kForward], 900);  // the events'

  const int layer = steps.session().names().index_of("conv1");
  const Tag tag = encode({{Phase::kForward, ReplicaId{0}, StageId{0}, MicroBatchId{0}}, layer});
  play_launch(2, 20, tag);
  play_kernel(2, 100, 300);
  play_launch(3, 30, tag);
  play_kernel(3, 0, 0);
  played_flush_from_worker();  // CUPTI's own thread delivers a part
  play_launch(4, 40, tag);
  CUpti_ActivityMemcpy6 copy{};
  copy.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
  copy.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_HTOD;
  copy.start = 310, copy.end = 330, copy.streamId = kStream, copy.correlationId = 4;
  play(copy);
  CUpti_ActivityGraphTrace2 graph{};
  graph.kind = CUPTI_ACTIVITY_KIND_GRAPH_TRACE;
  graph.start = 400, graph.end = 450, graph.streamId = kStream, graph.correlationId = 4, graph.graphId = 6;
  play(graph);
  CUpti_ActivityOverhead3 cost{};
  cost.kind = CUPTI_ACTIVITY_KIND_OVERHEAD;
  cost.start = 5, cost.end = 9, cost.overheadData = std::malloc(16);  // ours to free
  play(cost);
  CUpti_ActivitySynchronization2 wait{};
  wait.kind = CUPTI_ACTIVITY_KIND_SYNCHRONIZATION;
  wait.start = 1, wait.end = 4;
  play(wait);
  CUpti_ActivityAPI unknown{};
  unknown.kind = static_cast<CUpti_ActivityKind>(CUPTI_ACTIVITY_KIND_GRAPH_TRACE + 1);
  play(unknown);

  const StepSpans second = steps.attributed(host_step());
  EXPECT_EQ(profiler::break_down(second).slots.at(0)[Part::kForward], 200 + 20 + 50);
  EXPECT_EQ(second.dropped, 1U);  // the one without times
  EXPECT_EQ(steps.counts().without_times, 1U);
  EXPECT_EQ(steps.counts().overhead, 4);
  EXPECT_EQ(steps.counts().waits, 3);
  EXPECT_EQ(steps.counts().unknown, 1U);
  EXPECT_EQ(steps.counts().disagreements, 0U);
  const auto rows = steps.rows();
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].kernel, "gemm(float*)");
  EXPECT_EQ(rows[0].layer, "conv1");
  EXPECT_EQ(rows[0].sum.time, 200);
  EXPECT_EQ(rows[1].kernel, "CUDA graph 6");
  EXPECT_EQ(rows[2].kernel, "Memcpy HtoD");
}

// As a layer is measured: its parts one after another, each two calls, after a delay of the queue.
TEST_F(CuptiSession, PlayedRecordsOfSequencesBecomeTheTimesOfALayer) {
  const auto session = start();
  const std::vector<SequenceSpan> spans{{100, 200, 1000}, {2000, 2100, 3000}, {4000, 4100, 5000}};
  const auto play_part = [](std::uint32_t first, Nanoseconds begin, Nanoseconds kernel) {
    play_launch(first, begin - 50, kNoTag);
    play_kernel(first, begin - 40, begin + 150, "spin_kernel");
    for (std::uint32_t call = 1; call <= 2; ++call) {
      play_launch(first + call, begin + call * 10, kNoTag);
      play_kernel(first + call, begin + 100 + call * 100, begin + 100 + call * 100 + kernel);
    }
  };
  play_part(10, 100, 60);
  play_part(20, 2000, 80);
  play_part(30, 4000, 50);
  const auto kernels = sequence_kernels(session->collect(), spans);
  std::vector<profiler::CallTime> calls;
  for (const auto& time : kernels)
    calls.push_back(profiler::call_time({.calls = 2, .events = 200, .host = 400, .kernels = time}));
  const profiler::LayerTimes times = profiler::layer_times(8, calls.at(0), calls.at(1), calls.at(2));
  EXPECT_EQ(times.timed_by, profiler::kTimedByCupti);
  EXPECT_DOUBLE_EQ(times.forward_s, 60e-9);
  EXPECT_DOUBLE_EQ(times.input_gradient_s, 80e-9);
  EXPECT_DOUBLE_EQ(times.weight_gradient_s, 50e-9);
  EXPECT_DOUBLE_EQ(times.gpu->forward.events_s, 100e-9);
  EXPECT_TRUE(times.gpu->is_launch_bound);
}

TEST_F(CuptiSession, SequencesOfWhichRecordsAreDroppedAreNotKnown) {
  const auto session = start({.block_bytes = 1024, .blocks = 0});
  play_launch(1, 110, kNoTag);
  play_kernel(1, 120, 130);
  const std::vector<SequenceSpan> spans{{100, 200, 1000}};
  EXPECT_FALSE(sequence_kernels(session->collect(), spans).at(0).has_value());
}

// The step that begins at `begin`; the records of play_step() are of it.
StepSpans host_step_at(Nanoseconds begin) {
  StepSpans step = host_step();
  step.begin += begin, step.end += begin;
  Span& forward = step.slots[0].spans[0];
  forward.begin += begin, forward.end += begin, forward.host_begin += begin, forward.host_end += begin;
  return step;
}

void play_step(Nanoseconds begin) {
  play_launch(static_cast<std::uint32_t>(begin), begin + 20, kNoTag);
  play_kernel(static_cast<std::uint32_t>(begin), begin + 100, begin + 300);
}

// CUPTI's own thread hands records over while a flush returns: nothing is promised of those.
TEST_F(CuptiSession, AStepWaitsForRecordsThatAreBeingReadInAnotherThread) {
  StepKernels steps(start({.hand_over_timeout = std::chrono::seconds(60)}));
  static_cast<void>(steps.attributed(host_step()));
  play_step(1000);
  played_worker_begins();
  std::thread later([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    played_worker_goes_on();
  });
  const StepSpans step = steps.attributed(host_step_at(1000));
  later.join();
  EXPECT_EQ(profiler::break_down(step).slots.at(0)[Part::kForward], 200);
  EXPECT_EQ(step.dropped, 0U);
  steps.forget();
  EXPECT_EQ(steps.counts().late, 0U);
}

TEST_F(CuptiSession, RecordsThatAreNotReadInTimeAreMissedAndLate) {
  StepKernels steps(start({.hand_over_timeout = std::chrono::milliseconds(1)}));
  static_cast<void>(steps.attributed(host_step()));
  play_step(1000);
  played_worker_begins();
  const StepSpans step = steps.attributed(host_step_at(1000));
  EXPECT_EQ(step.dropped, 1U);
  played_worker_goes_on();
  play_step(2000);
  const StepSpans next = steps.attributed(host_step_at(2000));  // without forget(): they are found here
  EXPECT_EQ(profiler::break_down(next).slots.at(0)[Part::kForward], 200);
  EXPECT_EQ(next.dropped, 1U);
  EXPECT_EQ(steps.counts().late, 1U);
}

// A block with one record that is not complete is held back by a flush, all of it.
TEST_F(CuptiSession, RecordsOfAStepThatComeAfterItCountAsDroppedAndThoseOfAnEvaluationDoNot) {
  StepKernels steps(start());
  play_step(100);
  static_cast<void>(steps.attributed(host_step()));
  play_step(200);
  steps.forget();  // of the warm-up, which nobody reports
  static_cast<void>(steps.attributed(host_step_at(1000)));
  play_step(1000);
  play_step(2500);                // an evaluation
  play_kernel(1001, 1900, 1950);  // its launch came with the step
  steps.forget();
  steps.forget();
  EXPECT_EQ(steps.counts().late, 2U);
  play_step(3000);
  EXPECT_EQ(steps.attributed(host_step_at(3000)).dropped, 2U);
  play_step(4000);
  EXPECT_EQ(steps.attributed(host_step_at(4000)).dropped, 0U);
  EXPECT_EQ(steps.counts().work, 4U);
}

TEST_F(CuptiSession, AStreamThatIsNotKnownKeepsTheTimesOfItsEvents) {
  StepKernels steps(start());
  StepSpans host = host_step();
  host.slots[0].stream.handle = 0;
  static_cast<void>(steps.attributed(host));
  play_launch(1, 20, kNoTag);
  play_kernel(1, 100, 200);
  EXPECT_EQ(profiler::break_down(steps.attributed(host)).slots.at(0)[Part::kForward], 900);
  EXPECT_EQ(steps.counts().elsewhere, 1U);
}

TEST_F(CuptiSession, PastTheCapRecordsAreDroppedAndCounted) {
  const auto session = start({.block_bytes = 1024, .blocks = 0});
  for (std::uint32_t i = 0; i < 20; ++i) play_kernel(i, 1, 2);
  const Records records = session->collect();
  EXPECT_TRUE(records.work.empty());
  EXPECT_EQ(records.dropped, 20U);
  EXPECT_EQ(session->collect().dropped, 0U);
}

TEST_F(CuptiSession, RecordsPassThroughAsManyBlocksAsTheyNeed) {
  const auto session = start({.block_bytes = 1024, .blocks = 1});
  for (std::uint32_t i = 0; i < 100; ++i) play_kernel(i, 1 + i, 2 + i);
  const Records records = session->collect();
  ASSERT_EQ(records.work.size(), 100U);
  for (std::uint32_t i = 0; i < 100; ++i) EXPECT_EQ(records.work[i].correlation, i);
  EXPECT_EQ(records.dropped, 0U);
}

TEST_F(CuptiSession, WithoutADriverItSaysSo) {
  played_subscribe_answers(CUPTI_ERROR_UNKNOWN, "");
  EXPECT_EQ(start(), nullptr);
  EXPECT_THAT(why, HasSubstr("CUPTI_ERROR_UNKNOWN (999)"));
  EXPECT_EQ(profiler::holder_of_cupti(), profiler::GpuProfiler::kOff);
}

TEST_F(CuptiSession, AnotherClientIsNamed) {
  played_subscribe_answers(CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED, "Nsight Systems");
  EXPECT_EQ(start(), nullptr);
  EXPECT_EQ(why, "another client has CUPTI: Nsight Systems");
}

TEST_F(CuptiSession, WhoHasItIsAskedWithoutTakingIt) {
  const SessionOptions played{.library = PLAYED_CUPTI};
  EXPECT_FALSE(Session::is_taken(played, why)) << why;
  EXPECT_EQ(profiler::holder_of_cupti(), profiler::GpuProfiler::kOff);
  {
    const auto session = start();
    ASSERT_NE(session, nullptr) << why;
    EXPECT_TRUE(Session::is_taken(played, why));
    EXPECT_EQ(why, "another client has CUPTI: Sluice's CUPTI session");
  }
  played_subscribe_answers(CUPTI_ERROR_UNKNOWN, "");
  EXPECT_FALSE(Session::is_taken(played, why)) << "without a driver nobody has it";
  played_subscribe_answers(CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED, "Nsight Systems");
  EXPECT_TRUE(Session::is_taken(played, why));
  EXPECT_EQ(why, "another client has CUPTI: Nsight Systems");
}

TEST_F(CuptiSession, OneOfUsHasItAtATime) {
  {
    const auto session = start();
    ASSERT_NE(session, nullptr) << why;
    EXPECT_EQ(start(), nullptr);
    EXPECT_EQ(why, "another client has CUPTI: Sluice's CUPTI session");
  }
  const profiler::CuptiClaim torch(profiler::GpuProfiler::kTorch);
  EXPECT_EQ(start(), nullptr);
  EXPECT_EQ(why, "another client has CUPTI: LibTorch's profiler");
}

TEST_F(CuptiSession, AKindThatIsRefusedEndsTheStartAndLeavesNothingOn) {
  played_enable_answers(CUPTI_ACTIVITY_KIND_MEMCPY2, CUPTI_ERROR_NOT_COMPATIBLE);
  EXPECT_EQ(start(), nullptr);
  EXPECT_THAT(why, HasSubstr("records of kind 22"));
  EXPECT_EQ(played_enabled_kinds(), 0);
  EXPECT_EQ(played_subscribers(), 0);
}

TEST_F(CuptiSession, OlderLibrariesAndOtherOnesAreRefused) {
  played_version(28);
  EXPECT_EQ(start(), nullptr);
  EXPECT_THAT(why, HasSubstr("has version 28"));
  EXPECT_EQ(Session::start({.library = "libno_such_thing.so"}, why), nullptr);
  EXPECT_THAT(why, HasSubstr("libno_such_thing.so"));
}

TEST_F(CuptiSession, ItsEndLeavesNothingOnAndAnotherCanStart) {
  auto session = start();
  play_kernel(1, 1, 2);
  session.reset();  // what is under way comes back
  EXPECT_EQ(played_enabled_kinds(), 0);
  EXPECT_EQ(played_subscribers(), 0);
  EXPECT_EQ(played_blocks_out(), 0);
  session = start();
  ASSERT_NE(session, nullptr);
  EXPECT_TRUE(session->collect().work.empty());
}

TEST_F(CuptiSession, TimesAreOfOurClock) {
  {
    const auto session = start();
    const auto before = static_cast<std::uint64_t>(now_ns());
    EXPECT_GE(played_time_now(), before);
  }
  played_reset();
  played_timestamp_callback_answers(CUPTI_ERROR_UNKNOWN);
  const auto session = start();  // the library's clock stands at 1000
  play_kernel(1, 1000, 1500);
  const Records records = session->collect();
  ASSERT_EQ(records.work.size(), 1U);
  EXPECT_NEAR(static_cast<double>(records.work[0].begin), static_cast<double>(now_ns()), 1e9);
  EXPECT_EQ(records.work[0].end - records.work[0].begin, 500);
}

TEST_F(CuptiSession, TagsAreEachThreadsOwn) {
  const auto session = start();
  session->push(11);
  session->push(12);
  EXPECT_EQ(played_top_tag(), 12U);
  std::thread([&] {
    EXPECT_EQ(played_top_tag(), 0U);
    session->push(13);
    EXPECT_EQ(played_top_tag(), 13U);
    session->pop();
  }).join();
  session->pop();
  EXPECT_EQ(played_top_tag(), 11U);
  session->pop();
}

TEST_F(CuptiSession, AStreamIsNamedByItsHandle) {
  const auto session = start();
  EXPECT_EQ(session->key_of({.gpu = 2, .handle = 5}), (StreamKey{2, 5}));
  EXPECT_EQ(session->key_of({}).device, -1);
  EXPECT_EQ(session->key_of({.gpu = 2, .handle = 0}).device, -1);
}

}  // namespace
}  // namespace sluice::cupti
