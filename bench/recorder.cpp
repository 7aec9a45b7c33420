// recorder: nanoseconds per span: two clock readings, a store into the ring, and its share of collecting and breaking
// down. Prints one JSON object: the median, the smallest and the largest of the rounds.
#include "core/recorder.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "core/check.h"
#include "profiler/breakdown.h"

namespace sluice {
namespace {

constexpr int kRounds = 201, kSpans = 200;  // a round is about a step's spans of a stage with 32 micro-batches

double time_round(Recorder& recorder, Track* track) {
  const Nanoseconds begin = now_ns();
  for (int i = 0; i < kSpans; ++i) {
    const SpanScope span(track, Phase::kForward, MicroBatchId{i});
  }
  const profiler::StepBreakdown breakdown = profiler::break_down(recorder.collect(0, begin, now_ns()));
  const Nanoseconds end = now_ns();
  check(breakdown.dropped == 0, "no dropped spans in a round");
  return static_cast<double>(end - begin) / kSpans;
}

}  // namespace
}  // namespace sluice

int main() {
  sluice::Recorder recorder;
  sluice::Track* track = &recorder.add_track(sluice::ReplicaId{0}, sluice::DeviceId{0}, {sluice::StageId{0}});
  std::vector<double> times;
  for (int round = 0; round < sluice::kRounds; ++round) times.push_back(sluice::time_round(recorder, track));
  std::ranges::sort(times);
  std::printf("{\"span_ns\": %.1f, \"min\": %.1f, \"max\": %.1f}\n", times[times.size() / 2], times.front(),
              times.back());
  return 0;
}
