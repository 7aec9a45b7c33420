#include "pipeline/stream_spans.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sluice::pipeline {
namespace {

class KeptMarks final : public ActionMarks {
 public:
  void enter(const ActionTag& action) noexcept override { entered.push_back(action); }
  void enter_layer(const std::string&) noexcept override {}
  void leave() noexcept override { ++left; }
  std::vector<ActionTag> entered;
  int left = 0;
};

TEST(StreamSpans, WhoProfilesTheGpuIsToldOfEachSpanWhileItLasts) {
  Recorder recorder;
  Track& track = recorder.add_track(ReplicaId{1}, DeviceId{0}, {StageId{2}});
  const device::Stream stream = device::Stream::make(device::Device{});
  KeptMarks marks;
  StreamSpans spans(recorder.open(track), stream, &marks);
  {
    const StreamSpanScope backward(spans, Phase::kBackward, StageId{2}, MicroBatchId{3});
    const StreamSpanScope reducing(spans, Phase::kAllReduce, StageId{2});
    EXPECT_EQ(marks.left, 0);
  }
  EXPECT_EQ(marks.left, 2);
  EXPECT_EQ(marks.entered, (std::vector<ActionTag>{{Phase::kBackward, ReplicaId{1}, StageId{2}, MicroBatchId{3}},
                                                   {Phase::kAllReduce, ReplicaId{1}, StageId{2}}}));
  const std::vector<Span> recorded = recorder.collect(1, 0, now_ns()).slots[0].spans;
  ASSERT_EQ(recorded.size(), 2U);
  EXPECT_EQ(recorded[0].host_begin, recorded[0].begin);
  EXPECT_EQ(recorded[1].host_end, recorded[1].end);
}

TEST(StreamSpans, WhileNothingIsRecordedNobodyIsTold) {
  Recorder recorder(false);
  Track& track = recorder.add_track(ReplicaId{0}, DeviceId{0}, {StageId{0}});
  const device::Stream stream = device::Stream::make(device::Device{});
  KeptMarks marks;
  StreamSpans spans(recorder.open(track), stream, &marks);
  { const StreamSpanScope forward(spans, Phase::kForward); }
  EXPECT_TRUE(marks.entered.empty());
}

}  // namespace
}  // namespace sluice::pipeline
