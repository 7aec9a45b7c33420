// From what was seen of repeated calls on a GPU to the times of a layer, by made-up numbers.
#include "profiler/gpu_repeat_timing.h"

#include <gtest/gtest.h>

#include <array>

namespace sluice::profiler {
namespace {

constexpr double kMicro = 1e-6;

TEST(SequenceFor, LastsAMillisecondOfWhicheverTakesLonger) {
  EXPECT_EQ(sequence_for({.events_s = 110 * kMicro, .host_s = 10 * kMicro}).calls, 10);
  EXPECT_EQ(sequence_for({.events_s = 10 * kMicro, .host_s = 110 * kMicro}).calls, 10);
  EXPECT_EQ(sequence_for({.events_s = 300 * kMicro, .host_s = 10 * kMicro}).calls, 4) << "rounded up";
}

TEST(SequenceFor, IsOneCallWhereThatIsLongEnough) {
  EXPECT_EQ(sequence_for({.events_s = 0.5, .host_s = 10 * kMicro}).calls, 1);
}

TEST(SequenceFor, StaysWithinTheQueue) {
  EXPECT_EQ(sequence_for({.events_s = 0.1 * kMicro, .host_s = 0.1 * kMicro}).calls, 200);
  EXPECT_EQ(sequence_for({}), (Sequence{.calls = 200, .delay = 0})) << "nothing known of it, and nothing to do";
}

TEST(SequenceFor, KeepsTheQueueBusyUntilAllCallsAreEnqueued) {
  const CallTime known{.events_s = 20 * kMicro, .host_s = 41 * kMicro};
  const Sequence sequence = sequence_for(known);
  EXPECT_EQ(sequence.calls, 25);
  EXPECT_GE(sequence.delay, from_s(25 * known.host_s));
  EXPECT_LE(sequence.delay, from_s(2 * 25 * known.host_s));
  EXPECT_EQ(sequence_for({.events_s = 1, .host_s = 1}).delay, 20'000'000) << "no longer than 20 ms";
}

TEST(CallTime, IsASequencesShare) {
  const CallTime call = call_time({.calls = 4, .events = 4'000'000, .host = 400'000, .kernels = 3'600'000});
  EXPECT_DOUBLE_EQ(call.events_s, 1e-3);
  EXPECT_DOUBLE_EQ(call.host_s, 1e-4);
  EXPECT_DOUBLE_EQ(call.kernels_s.value_or(0), 9e-4);
  EXPECT_FALSE(call_time({.calls = 4, .events = 4'000'000}).kernels_s.has_value());
}

TEST(KeepShortest, TakesEachTimeByItself) {
  CallTime best{.events_s = 3, .host_s = 5, .kernels_s = std::nullopt};
  keep_shortest(best, {.events_s = 4, .host_s = 4, .kernels_s = 2});
  EXPECT_EQ(best, (CallTime{3, 4, 2}));
  keep_shortest(best, {.events_s = 1, .host_s = 6, .kernels_s = 3});
  EXPECT_EQ(best, (CallTime{1, 4, 2}));
  keep_shortest(best, {.events_s = 2, .host_s = 6, .kernels_s = std::nullopt});
  EXPECT_EQ(best, (CallTime{1, 4, 2})) << "a pass whose records were dropped takes nothing away";
  keep_shortest(best, {.events_s = 2, .host_s = 6, .kernels_s = 1});
  EXPECT_EQ(best, (CallTime{1, 4, 1}));
}

TEST(SumOf, IsKnownWhereAllKernelsAre) {
  EXPECT_EQ(sum_of(std::array{CallTime{1, 2, 3}, CallTime{10, 20, 30}}), (CallTime{11, 22, 33}));
  EXPECT_EQ(sum_of(std::array{CallTime{1, 2, std::nullopt}, CallTime{10, 20, 30}}), (CallTime{11, 22, std::nullopt}));
  EXPECT_EQ(sum_of(std::span<const CallTime>()), (CallTime{0, 0, 0}));
}

TEST(LayerTimesOfAGpu, AreThoseOfTheKernelsWhereAllAreKnown) {
  const LayerTimes times = layer_times(8, {5, 1, 4}, {7, 1, 6}, {9, 1, 8});
  EXPECT_EQ(times.samples, 8);
  EXPECT_EQ(times.timed_by, "cupti");
  EXPECT_EQ(times.forward_s, 4);
  EXPECT_EQ(times.input_gradient_s, 6);
  EXPECT_EQ(times.weight_gradient_s, 8);
  EXPECT_EQ(times.gpu->forward.events_s, 5) << "that by events is kept beside it";
  EXPECT_FALSE(times.gpu->is_launch_bound);
}

TEST(LayerTimesOfAGpu, AreThoseOfEventsForAllPartsWhereOneIsNotKnown) {
  const LayerTimes times = layer_times(8, {5, 1, 4}, {7, 1, std::nullopt}, {9, 1, 8});
  EXPECT_EQ(times.timed_by, "events");
  EXPECT_EQ(times.forward_s, 5);
  EXPECT_EQ(times.input_gradient_s, 7);
  EXPECT_EQ(times.weight_gradient_s, 9);
}

TEST(LayerTimesOfAGpu, AreTheHostsByEventsWhereItTakesLonger) {
  const LayerTimes times = layer_times(1, {5, 6, {}}, {7, 3, {}}, {0, 0, {}});
  EXPECT_EQ(times.forward_s, 6);
  EXPECT_EQ(times.input_gradient_s, 7);
  EXPECT_EQ(times.weight_gradient_s, 0);
  EXPECT_FALSE(times.gpu->is_launch_bound) << "9 on the host, 12 on the GPU";
}

TEST(LayerTimesOfAGpu, AreLaunchBoundWhereEnqueueingTakesLonger) {
  EXPECT_TRUE(layer_times(1, {5, 6, {}}, {1, 3, {}}, {0, 0, {}}).gpu->is_launch_bound);
  EXPECT_FALSE(layer_times(1, {5, 5, {}}, {}, {}).gpu->is_launch_bound) << "just as long";
  // By events the gaps between kernels count for the GPU, by records they do not.
  EXPECT_FALSE(layer_times(1, {10, 9, {}}, {}, {}).gpu->is_launch_bound);
  EXPECT_TRUE(layer_times(1, {10, 9, 8}, {0, 0, 0}, {0, 0, 0}).gpu->is_launch_bound);
}

TEST(LaunchBoundLayers, AreCountedAtOneSize) {
  LayerProfile profile;
  for (const double host : {1.0, 30.0, 40.0}) {
    profile.layers.emplace_back().times = {layer_times(1, {10, 100, {}}, {}, {}),
                                           layer_times(8, {10, host, {}}, {}, {})};
  }
  profile.layers.emplace_back().times = {{.samples = 8, .forward_s = 1}};  // by a clock
  const LaunchBound bound = launch_bound_layers(profile, 8);
  EXPECT_EQ(bound.layers, 2);
  EXPECT_EQ(bound.host_s, 70);
  EXPECT_EQ(bound.device_s, 20);
  EXPECT_EQ(launch_bound_layers(profile, 1).layers, 3);
  EXPECT_EQ(launch_bound_layers(profile, 7).layers, 3) << "the next smaller size";
  EXPECT_EQ(launch_bound_layers(profile, 100).layers, 2);
  EXPECT_EQ(launch_bound_layers(profile, 0).layers, 3) << "the smallest one";
  EXPECT_EQ(launch_bound_layers(LayerProfile{.layers = std::vector<MeasuredLayer>(2)}, 8).layers, 0);
}

}  // namespace
}  // namespace sluice::profiler
