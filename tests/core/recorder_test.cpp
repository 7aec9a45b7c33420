#include "core/recorder.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(Recorder, ASpanCoversTheLifeOfItsScope) {
  Recorder recorder;
  Track& track = recorder.add_track(ReplicaId{1}, StageId{2});
  const Nanoseconds before = now_ns();
  { const SpanScope scope(&track, Phase::kForward, MicroBatchId{3}); }
  const Nanoseconds after = now_ns();
  ASSERT_EQ(recorder.tracks().size(), 1U);
  ASSERT_EQ(track.spans().size(), 1U);
  const Span& span = track.spans().front();
  EXPECT_EQ(span.phase, Phase::kForward);
  EXPECT_EQ(span.micro_batch, MicroBatchId{3});
  EXPECT_LE(before, span.begin);
  EXPECT_LE(span.begin, span.end);
  EXPECT_LE(span.end, after);
}

TEST(Recorder, ClearEmptiesTheTracksAndKeepsThem) {
  Recorder recorder;
  Track& track = recorder.add_track(ReplicaId{0}, StageId{0});
  track.add({Phase::kLoad, MicroBatchId{0}, 0, 1});
  recorder.clear();
  EXPECT_TRUE(track.spans().empty());
  EXPECT_EQ(recorder.tracks().size(), 1U);
}

TEST(SpanScope, WithoutATrackRecordsNothing) { const SpanScope scope(nullptr, Phase::kForward); }

}  // namespace
}  // namespace sluice
