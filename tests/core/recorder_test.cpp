#include "core/recorder.h"

#include <gtest/gtest.h>

#include <numeric>
#include <thread>

namespace sluice {
namespace {

TEST(Recorder, ASpanCoversTheLifeOfItsScope) {
  Recorder recorder;
  Track* track = &recorder.add_track(ReplicaId{1}, DeviceId{2}, {StageId{2}, StageId{5}});
  const Nanoseconds before = now_ns();
  { const SpanScope scope(track, Phase::kForward, MicroBatchId{3}); }
  const Nanoseconds after = now_ns();
  const StepSpans spans = recorder.collect(7, before, after);
  EXPECT_EQ(spans.step, 7);
  ASSERT_EQ(spans.slots.size(), 1U);
  EXPECT_EQ(spans.slots[0].replica, ReplicaId{1});
  EXPECT_EQ(spans.slots[0].device, DeviceId{2});
  EXPECT_EQ(spans.slots[0].stages, (std::vector{StageId{2}, StageId{5}}));
  ASSERT_EQ(spans.slots[0].spans.size(), 1U);
  const Span& span = spans.slots[0].spans[0];
  EXPECT_EQ(span.phase, Phase::kForward);
  EXPECT_EQ(span.micro_batch, MicroBatchId{3});
  EXPECT_LE(before, span.begin);
  EXPECT_LE(span.begin, span.end);
  EXPECT_LE(span.end, after);
  EXPECT_EQ(span.host_begin, span.begin);  // a CPU device's time is the host's
  EXPECT_EQ(span.host_end, span.end);
  EXPECT_EQ(spans.slots[0].stream, StreamName{});
}

TEST(Recorder, ASlotKeepsTheNameOfItsStream) {
  Recorder recorder;
  static_cast<void>(recorder.add_track(ReplicaId{0}, DeviceId{0}, {StageId{0}}, {.gpu = 1, .handle = 42}));
  EXPECT_EQ(recorder.collect(1, 0, 1).slots[0].stream, (StreamName{.gpu = 1, .handle = 42}));
}

TEST(Recorder, CollectGivesWhatIsNewAndKeepsTheTracks) {
  Recorder recorder;
  Track* track = &recorder.add_track(ReplicaId{0}, DeviceId{0}, {StageId{0}});
  track->add({Phase::kForward, MicroBatchId{0}, 0, 1});
  Track* process = recorder.process();
  ASSERT_NE(process, nullptr);
  process->add({Phase::kLoadWait, kNoMicroBatch, 1, 2});
  recorder.add_buckets({{StageId{0}, 3, 1, 2, 4}}, {.rank = 1, .wait = 5});
  const StepSpans first = recorder.collect(1, 0, 10);
  EXPECT_EQ(first.slots[0].spans.size(), 1U);
  EXPECT_EQ(first.process.size(), 1U);
  ASSERT_EQ(first.buckets.size(), 1U);
  EXPECT_EQ(first.buckets[0].bucket, 3);
  track->add({Phase::kBackward, MicroBatchId{0}, 2, 3});
  const StepSpans second = recorder.collect(2, 10, 20);
  ASSERT_EQ(second.slots[0].spans.size(), 1U);
  EXPECT_EQ(second.slots[0].spans[0].phase, Phase::kBackward);
  EXPECT_TRUE(second.process.empty());
  EXPECT_TRUE(second.buckets.empty());
  EXPECT_EQ(first.late.rank, 1);
  EXPECT_EQ(second.late.rank, -1);
}

TEST(Recorder, SwitchedOffItOpensNoTracksUntilItIsSwitchedOn) {
  Recorder recorder(false);
  Track& track = recorder.add_track(ReplicaId{0}, DeviceId{0}, {StageId{0}});
  EXPECT_EQ(recorder.open(track), nullptr);
  EXPECT_EQ(recorder.process(), nullptr);
  recorder.add_buckets({{}}, {.rank = 1});
  { const SpanScope scope(recorder.open(track), Phase::kForward); }
  const StepSpans spans = recorder.collect(1, 0, 1);
  EXPECT_TRUE(spans.slots.empty());
  EXPECT_TRUE(spans.buckets.empty());
  recorder.switch_on(true);
  { const SpanScope scope(recorder.open(track), Phase::kForward); }
  const StepSpans later = recorder.collect(2, 0, 1);
  ASSERT_EQ(later.slots.size(), 1U);
  EXPECT_EQ(later.slots[0].spans.size(), 1U);
}

TEST(SpanRing, AFullRingDropsTheNewestAndCountsThem) {
  SpanRing ring(4);
  for (int i = 0; i < 7; ++i) ring.push({Phase::kForward, MicroBatchId{i}, i, i});
  std::vector<Span> spans;
  ring.take(spans);
  ASSERT_EQ(spans.size(), 4U);
  EXPECT_EQ(spans.back().micro_batch, MicroBatchId{3});
  EXPECT_EQ(ring.take_dropped(), 3U);
  EXPECT_EQ(ring.take_dropped(), 0U);
  ring.push({Phase::kForward, MicroBatchId{9}, 0, 0});
  ring.take(spans);
  EXPECT_EQ(spans.back().micro_batch, MicroBatchId{9});
}

// Under ThreadSanitizer (preset tsan) this also shows that the ring needs no lock.
TEST(SpanRing, AReaderBesideTheWriterSeesEverySpanOnceAndInOrder) {
  constexpr Nanoseconds kSpans = 200'000;
  SpanRing ring(64);
  std::atomic<bool> is_done = false;
  std::jthread writer([&] {
    for (Nanoseconds i = 0; i < kSpans; ++i) ring.push({Phase::kForward, kNoMicroBatch, i, 2 * i});
    is_done = true;
  });
  std::vector<Span> seen;
  while (!is_done) ring.take(seen);
  ring.take(seen);
  EXPECT_EQ(static_cast<Nanoseconds>(seen.size() + ring.take_dropped()), kSpans);
  for (std::size_t i = 0; i < seen.size(); ++i) {
    ASSERT_EQ(seen[i].end, 2 * seen[i].begin) << "a span was read while it was being written";
    ASSERT_TRUE(i == 0 || seen[i - 1].begin < seen[i].begin);
  }
}

}  // namespace
}  // namespace sluice
