#include "profiler/cupti/attribute.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "profiler/breakdown.h"

namespace sluice::cupti {
namespace {

using profiler::Part;

constexpr int kGemm = 0, kCopy = 1, kNccl = 2;

Tag tag_of(Phase phase, int replica, int stage, int micro_batch, int layer = kNoLayer) {
  return encode({{phase, ReplicaId{replica}, StageId{stage}, MicroBatchId{micro_batch}}, layer});
}

TEST(Tag, IsReadBackAsItWasWritten) {
  for (const int micro_batch : {-1, 0, 5, 4094}) {
    for (const int stage : {-1, 0, 1022}) {
      const TagFields fields{{Phase::kCheckpoint, ReplicaId{7}, StageId{stage}, MicroBatchId{micro_batch}}, 65534};
      EXPECT_EQ(decode(encode(fields)), fields);
    }
  }
  const TagFields too_large{{Phase::kForward, ReplicaId{0}, StageId{0}, MicroBatchId{5000}}, 70000};
  EXPECT_EQ(decode(encode(too_large)).action.micro_batch, kNoMicroBatch);
  EXPECT_EQ(decode(encode(too_large)).layer, kNoLayer);
  EXPECT_NE(encode({{Phase::kLoadWait, ReplicaId{-1}}}), kNoTag);
}

// A span of a GPU: by events, which are wrong on purpose (all of the step), and its host interval.
Span action(Phase phase, int stage, int micro_batch, Nanoseconds host_begin, Nanoseconds host_end) {
  return {phase, MicroBatchId{micro_batch}, 0, 1000, StageId{stage}, host_begin, host_end};
}

StepSpans::Slot slot(int replica, int stage, std::vector<Span> spans) {
  return {ReplicaId{replica}, DeviceId{stage}, {StageId{stage}}, std::move(spans)};
}

StepSpans step_of(StepSpans::Slot slot) {
  StepSpans step;
  step.end = 100;
  step.slots = {std::move(slot)};
  return step;
}

// Device work, its launch, and its tag where it has one.
class Recording {
 public:
  Recording& work(StreamKey where, Nanoseconds launch, Nanoseconds begin, Nanoseconds end, Tag tag = kNoTag,
                  int name = kGemm) {
    const std::uint32_t correlation = ++next_;
    records.launches.push_back({correlation, 1, launch, launch + 1});
    if (tag != kNoTag) records.externals.push_back({correlation, tag});
    records.work.push_back({.correlation = correlation,
                            .where = where,
                            .begin = begin,
                            .end = end,
                            .name = name,
                            .is_communication = name == kNccl});
    return *this;
  }
  Records records;

 private:
  std::uint32_t next_ = 0;
};

constexpr std::array kStreams{StreamKey{0, 7}, StreamKey{1, 7}, StreamKey{2, 9}, StreamKey{3, 9}};

// Two stages, two replicas: each slot's forward and backward with times of its own, an optimizer, the peer copy that
// runs on the source's side, what the autograd thread launches, records that lack something.
void record_slot(int replica, int stage, StepSpans& host, Recording& recorded) {
  const Nanoseconds late = 10 * replica;
  host.slots.push_back(slot(replica, stage,
                            {action(Phase::kReceive, stage, 0, 5, 9), action(Phase::kForward, stage, 0, 10, 50),
                             action(Phase::kAllReduce, stage, -1, 80, 85), action(Phase::kBackward, stage, 0, 60, 100),
                             action(Phase::kOptimizer, stage, -1, 110, 120)}));
  const StreamKey own = kStreams[2 * replica + stage];
  recorded
      .work({9, 1}, 6, 20, 40 + late, tag_of(Phase::kReceive, replica, stage, 0), kCopy)  // another stream
      .work(own, 10, 100, 200, tag_of(Phase::kForward, replica, stage, 0, 3))
      .work(own, 49, 190, 250)         // overlaps the one before
      .work(own, 60, 300, 400 + late)  // the autograd thread's launch, by its time
      .work(own, 82, 420, 430)         // inside the backward: adds replicas up
      .work(own, 99, 440, 500)         // still the backward
      .work(own, 110, 600, 640)
      .work(own, 130, 700, 720)           // outside of any action
      .work(own, 20, 0, 0)                // without times
      .work({9, 2}, 20, 10, 990)          // a stream of no slot, without a tag
      .work(own, 20, host.begin - 50, 0)  // came late: of the step before
      .records.work.push_back({.correlation = 9999, .where = own, .begin = 800, .end = 900});  // no launch
}

TEST(Attribute, ATwoStageTwoReplicaStepGivesThePlantedBreakdown) {
  StepSpans host;
  host.end = 1000;
  Recording recorded;
  for (int at = 0; at < 4; ++at) record_slot(at / 2, at % 2, host, recorded);
  // A graph: its kernels share the launch's correlation.
  Work launch = recorded.records.work[1];
  launch.kind = WorkKind::kGraph;
  launch.begin = 250, launch.end = 260;
  recorded.records.work.push_back(launch);
  recorded.records.dropped = 5;
  recorded.records.overheads = {{1, 10, 17}};
  recorded.records.waits = {{1, 10, 13}};

  const Attribution result = attribute(host, {kStreams.begin(), kStreams.end()}, recorded.records);
  EXPECT_EQ(result.counts.work, 45U + 4U);
  EXPECT_EQ(result.counts.late, 4U);
  EXPECT_EQ(result.counts.without_times, 4U);
  EXPECT_EQ(result.counts.without_launch, 4U);
  EXPECT_EQ(result.counts.outside, 4U);
  EXPECT_EQ(result.counts.elsewhere, 4U);
  EXPECT_EQ(result.counts.disagreements, 0U);
  EXPECT_EQ(result.counts.overhead, 7);
  EXPECT_EQ(result.counts.waits, 3);
  EXPECT_EQ(result.spans.dropped, 5U + 4 + 4 + 4);  // the breakdown is incomplete, and says so
  const profiler::StepBreakdown breakdown = profiler::break_down(result.spans);
  ASSERT_EQ(breakdown.slots.size(), 4U);
  for (int at = 0; at < 4; ++at) {
    const Nanoseconds late = 10 * (at / 2);
    const profiler::SlotBreakdown& one = breakdown.slots[at];
    EXPECT_EQ(one[Part::kStageCopy], 20 + late);
    EXPECT_EQ(one[Part::kForward], 150 + (at == 0 ? 10 : 0));
    EXPECT_EQ(one[Part::kBackward], 100 + late + 60);
    EXPECT_EQ(one[Part::kAllReduce], 10);
    EXPECT_EQ(one[Part::kOptimizer], 40);
    EXPECT_EQ(std::accumulate(one.parts.begin(), one.parts.end(), Nanoseconds{0}), 1000);
  }
  EXPECT_EQ(result.kernels.at({Phase::kForward, 3, kGemm}).calls, 4U + 1);
  EXPECT_EQ(result.kernels.at({Phase::kForward, 3, kGemm}).time, 410);
  EXPECT_EQ(result.kernels.at({Phase::kReceive, kNoLayer, kCopy}).calls, 4U);
}

// A copy and a sum on queues of their own, both hidden in part by what the slot's own stream runs.
TEST(Attribute, WhatOtherStreamsRunIsBesideTheSlotsOwn) {
  const StepSpans host = step_of(slot(0, 0,
                                      {action(Phase::kHostToDevice, 0, 1, 5, 9), action(Phase::kBackward, 0, 0, 10, 20),
                                       action(Phase::kAllReduce, 0, -1, 15, 18)}));
  Recording recorded;
  recorded.work({0, 8}, 6, 20, 35, tag_of(Phase::kHostToDevice, 0, 0, 1), kCopy)
      .work({0, 7}, 10, 30, 60, tag_of(Phase::kBackward, 0, 0, 0))
      .work({0, 9}, 16, 50, 80, tag_of(Phase::kAllReduce, 0, 0, -1));
  const Attribution result = attribute(host, {{0, 7}}, recorded.records);
  EXPECT_EQ(result.counts.elsewhere, 0U);
  for (const Span& span : result.spans.slots.at(0).spans) EXPECT_EQ(span.is_beside, span.phase != Phase::kBackward);
  const profiler::SlotBreakdown one = profiler::break_down(result.spans).slots.at(0);
  EXPECT_EQ(one[Part::kHostToDevice], 10);
  EXPECT_EQ(one[Part::kBackward], 30);
  EXPECT_EQ(one[Part::kAllReduce], 20);
  EXPECT_EQ(one.all_reduce, 30);
}

TEST(Attribute, WhereTagAndIntervalDisagreeTheIntervalCountsAndItIsSaid) {
  const StepSpans host = step_of(slot(0, 0, {action(Phase::kForward, 0, 0, 10, 50)}));
  Recording recorded;
  recorded.work({0, 7}, 20, 30, 40, tag_of(Phase::kBackward, 0, 0, 0, 2));
  const Attribution result = attribute(host, {{0, 7}}, recorded.records);
  EXPECT_EQ(result.counts.disagreements, 1U);
  ASSERT_EQ(result.spans.slots[0].spans.size(), 1U);
  EXPECT_EQ(result.spans.slots[0].spans[0].phase, Phase::kForward);
  EXPECT_EQ(result.kernels.count({Phase::kForward, kNoLayer, kGemm}), 1U);
}

TEST(Attribute, KernelsOfNcclTellWhenABucketRan) {
  StepSpans host = step_of(slot(0, 0, {action(Phase::kBackward, 0, 0, 10, 50)}));
  host.buckets = {{StageId{0}, 4, 20, 45, 99}, {StageId{1}, 5, 1, 1, 1}};
  Recording recorded;
  recorded.work({0, 7}, 20, 20, 50).work({0, 30}, 21, 40, 60, tag_of(Phase::kAllReduce, 0, 0, -1), kNccl);
  const Attribution result = attribute(host, {{0, 7}}, recorded.records);
  ASSERT_EQ(result.spans.buckets.size(), 2U);
  const BucketSpan& bucket = result.spans.buckets[1];
  EXPECT_EQ(bucket.bucket, 4);
  EXPECT_EQ(bucket.begin, 40);
  EXPECT_EQ(bucket.all_there, 45);
  EXPECT_EQ(bucket.end, 60);
  const profiler::SlotBreakdown one = profiler::break_down(result.spans).slots.at(0);
  EXPECT_EQ(one[Part::kBackward], 30);
  EXPECT_EQ(one.all_reduce_exposed(), 10);
  EXPECT_EQ(one.all_reduce_hidden(), 10);
}

// Batch-norm's statistics: the slot waits for them, so they are exposed.
TEST(Attribute, CommunicationOfNoStageIsTheSlotsOwnAllReduce) {
  const StepSpans host = step_of(slot(0, 0, {action(Phase::kForward, 0, 0, 10, 50)}));
  Recording recorded;
  recorded.work({0, 30}, 21, 40, 60, tag_of(Phase::kAllReduce, 0, -1, -1), kNccl);
  const Attribution result = attribute(host, {{0, 7}}, recorded.records);
  EXPECT_TRUE(result.spans.buckets.empty());
  EXPECT_EQ(profiler::break_down(result.spans).slots.at(0)[Part::kAllReduce], 20);
}

// Both stages' GPUs belong to the replica, and the tag names no stage.
TEST(Attribute, StatisticsOfAReplicaOfSeveralGpusAreOfTheOneThatTheyRanOn) {
  StepSpans host = step_of(slot(0, 0, {action(Phase::kForward, 0, 0, 10, 50)}));
  host.slots.push_back(slot(0, 1, {action(Phase::kForward, 1, 0, 10, 50)}));
  const Tag tag = tag_of(Phase::kAllReduce, 0, -1, -1);
  Recording recorded;
  recorded.work({0, 30}, 21, 40, 60, tag, kNccl).work({1, 30}, 22, 40, 70, tag, kNccl);
  recorded.work({2, 30}, 23, 40, 90, tag, kNccl);  // a GPU that is none of theirs
  const Attribution result = attribute(host, {{0, 7}, {1, 7}}, recorded.records);
  const profiler::StepBreakdown breakdown = profiler::break_down(result.spans);
  EXPECT_EQ(breakdown.slots.at(0)[Part::kAllReduce], 20);
  EXPECT_EQ(breakdown.slots.at(1)[Part::kAllReduce], 30);
  EXPECT_EQ(result.counts.elsewhere, 1U);
}

// What NCCL's kernels of one stage, [begin, end), are told by its buckets: when the last process was there.
std::vector<Nanoseconds> all_there(std::vector<BucketSpan> buckets,
                                   const std::vector<std::pair<Nanoseconds, Nanoseconds>>& kernels) {
  StepSpans host = step_of(slot(0, 0, {action(Phase::kBackward, 0, 0, 10, 50)}));
  host.end = 1000;
  host.buckets = std::move(buckets);
  Recording recorded;
  for (const auto& [begin, end] : kernels)
    recorded.work({0, 30}, 21, begin, end, tag_of(Phase::kBackward, 0, 0, 0), kNccl);
  std::vector<Nanoseconds> moments;
  for (const BucketSpan& bucket : attribute(host, {{0, 7}}, recorded.records).spans.buckets)
    moments.push_back(bucket.all_there);
  return moments;
}

// Else what is waited for the slowest process would count as transfer.
TEST(Attribute, WhereNcclsKernelsAreNotAsManyAsTheBucketsTheSkewIsStillTold) {
  const std::vector<BucketSpan> two{{StageId{0}, 0, 100, 300, 990}, {StageId{0}, 1, 100, 900, 990}};
  using Moments = std::vector<Nanoseconds>;
  EXPECT_EQ(all_there(two, {{100, 350}, {350, 970}}), (Moments{300, 900}));
  EXPECT_EQ(all_there(two, {{100, 970}}), (Moments{900}));                                    // both in one kernel
  EXPECT_EQ(all_there(two, {{100, 340}, {340, 360}, {360, 970}}), (Moments{300, 340, 900}));  // the first in two
  EXPECT_EQ(all_there(two, {{100, 340}, {340, 920}, {920, 970}}), (Moments{300, 900, 920}));  // the second in two
  const std::vector<BucketSpan> late{{StageId{0}, 0, 100, 900, 990}, {StageId{0}, 1, 100, 900, 990}};
  EXPECT_EQ(all_there(late, {{100, 390}, {390, 680}, {680, 970}}), (Moments{390, 680, 900}));
  EXPECT_EQ(all_there({}, {{100, 390}}), (Moments{100}));
}

TEST(Attribute, ASlotOnACpuKeepsItsSpans) {
  const StepSpans host = step_of(slot(0, 0, {action(Phase::kForward, 0, 0, 10, 50)}));
  const Attribution result = attribute(host, {{}}, {});
  EXPECT_EQ(result.spans.slots[0].spans.size(), 1U);
  EXPECT_EQ(result.spans.dropped, 0U);
}

constexpr int kLength = 200;
constexpr std::array kPhases{Phase::kForward, Phase::kBackward, Phase::kOptimizer};  // the first that runs counts

// By looking at each span.
const Span* innermost_of(const std::vector<Span>& spans, Nanoseconds launch) {
  const Span* innermost = nullptr;
  for (const Span& span : spans) {
    if (span.host_begin > launch || span.host_end <= launch) continue;
    const bool is_inner = innermost == nullptr || span.host_begin > innermost->host_begin ||
                          (span.host_begin == innermost->host_begin && span.host_end <= innermost->host_end);
    if (is_inner) innermost = &span;
  }
  return innermost;
}

// By looking at each nanosecond: [phase], and the number of records outside.
std::pair<std::array<Nanoseconds, 3>, std::uint64_t> looked_at(const std::vector<Span>& spans, const Records& records) {
  std::array<std::array<bool, kLength>, 3> runs{};
  std::uint64_t outside = 0;
  for (std::size_t i = 0; i < records.work.size(); ++i) {
    const Span* innermost = innermost_of(spans, records.launches[i].begin);
    outside += innermost == nullptr ? 1 : 0;
    if (innermost == nullptr) continue;
    const auto phase = std::ranges::find(kPhases, innermost->phase) - kPhases.begin();
    const Nanoseconds end = std::min<Nanoseconds>(records.work[i].end, kLength);
    for (Nanoseconds at = records.work[i].begin; at < end; ++at) runs[phase][at] = true;
  }
  std::array<Nanoseconds, 3> parts{};
  for (int at = 0; at < kLength; ++at) {
    const auto first = std::ranges::find_if(runs, [&](const auto& of_phase) { return of_phase[at]; });
    if (first != runs.end()) ++parts[first - runs.begin()];
  }
  return {parts, outside};
}

// Random actions, which need not even lie properly inside each other, and random work.
TEST(Attribute, RandomRecordsGiveWhatLookingAtEachNanosecondGives) {
  std::mt19937 random(20261124);
  const auto below = [&](int limit) { return static_cast<int>(random() % static_cast<unsigned>(limit)); };
  for (int round = 0; round < 300; ++round) {
    StepSpans host;
    host.end = kLength;
    host.slots = {slot(0, 0, {})};
    std::vector<Span>& spans = host.slots[0].spans;
    for (int i = below(12); i-- > 0;) {
      const int begin = below(kLength);
      spans.push_back(action(kPhases[below(3)], 0, below(4), begin, begin + below(60)));
    }
    Recording recorded;
    for (int i = below(30); i-- > 0;) {
      const int begin = 1 + below(kLength - 10);
      recorded.work({0, 7}, below(kLength), begin, begin + below(40));
    }
    const auto [parts, outside] = looked_at(spans, recorded.records);
    const Attribution result = attribute(host, {{0, 7}}, recorded.records);
    const profiler::SlotBreakdown one = profiler::break_down(result.spans).slots.at(0);
    ASSERT_EQ(result.counts.outside, outside) << round;
    ASSERT_EQ(one[Part::kForward], parts[0]) << round;
    ASSERT_EQ(one[Part::kBackward], parts[1]) << round;
    ASSERT_EQ(one[Part::kOptimizer], parts[2]) << round;
  }
}

}  // namespace
}  // namespace sluice::cupti
