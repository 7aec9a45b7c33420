#include "profiler/breakdown.h"

#include <algorithm>
#include <map>

namespace sluice::profiler {
namespace {

// Time of each phase without what is inside nested spans. Spans of a track nest or are disjoint: one thread makes them.
void add_exclusive_times(std::vector<Span> spans, StageBreakdown& stage) {
  std::sort(spans.begin(), spans.end(),
            [](const Span& a, const Span& b) { return a.begin != b.begin ? a.begin < b.begin : a.end > b.end; });
  std::vector<Span> open;
  for (const Span& span : spans) {
    while (!open.empty() && open.back().end <= span.begin) open.pop_back();
    stage[span.phase] += span.end - span.begin;
    if (!open.empty()) stage[open.back().phase] -= span.end - span.begin;
    open.push_back(span);
  }
}

}  // namespace

const char* name_of(Phase phase) {
  switch (phase) {
    case Phase::kLoad: return "load";
    case Phase::kForward: return "forward";
    case Phase::kBackward: return "backward";
    case Phase::kTransfer: return "transfer";
    case Phase::kAllReduce: return "allreduce";
    case Phase::kOptimizer: return "optimizer";
  }
  return "";
}

StepBreakdown break_down(const Recorder& recorder, Nanoseconds step, const StepWaits& waits) {
  StepBreakdown breakdown{step, {}};
  for (const Track& track : recorder.tracks()) {
    StageBreakdown& stage = breakdown.stages.emplace_back(StageBreakdown{track.replica(), track.stage(), {}, 0});
    add_exclusive_times(track.spans(), stage);
    stage[Phase::kLoad] += waits.load;
    stage[Phase::kAllReduce] += waits.sync;
    stage.idle = step;
    for (const Nanoseconds time : stage.of_phase) stage.idle -= time;
  }
  return breakdown;
}

StageBreakdown StepBreakdown::mean() const {
  StageBreakdown mean{};
  const auto count = static_cast<Nanoseconds>(std::max<std::size_t>(stages.size(), 1));
  for (const StageBreakdown& stage : stages) {
    for (int phase = 0; phase < kPhases; ++phase) mean.of_phase[phase] += stage.of_phase[phase];
  }
  // What integer division drops goes to idle, so that the parts still add up to the step.
  mean.idle = step;
  for (Nanoseconds& time : mean.of_phase) {
    time /= count;
    mean.idle -= time;
  }
  if (stages.empty()) mean.idle = step;
  return mean;
}

StageId StepBreakdown::slowest_stage() const {
  std::map<int, Nanoseconds> compute;
  for (const StageBreakdown& stage : stages) compute[index(stage.stage)] += stage.compute();
  const auto slowest = std::max_element(compute.begin(), compute.end(),
                                        [](const auto& a, const auto& b) { return a.second < b.second; });
  return slowest == compute.end() ? StageId{0} : StageId{slowest->first};
}

std::vector<double> StepBreakdown::device_busy() const {
  std::vector<double> busy;
  for (const StageBreakdown& stage : stages) {
    busy.push_back(step > 0 ? static_cast<double>(stage.compute()) / static_cast<double>(step) : 0.0);
  }
  return busy;
}

}  // namespace sluice::profiler
