// recorded_steps: steps as a recorder would have seen them, made by a test: of a schedule as the simulator times it,
// and by hand. Units: nanoseconds.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "pipeline/schedule/action.h"
#include "pipeline/schedule/simulate.h"
#include "tune/step_replay.h"

namespace sluice::tune::test {

inline Span span_of(Phase phase, Nanoseconds begin, Nanoseconds end, int stage = -1, int micro_batch = -1) {
  return {phase, MicroBatchId{micro_batch}, begin, end, StageId{stage}, begin, end};
}

inline StepSpans::Slot slot_of(int replica, int device, std::vector<int> stages, std::vector<Span> spans) {
  StepSpans::Slot slot{ReplicaId{replica}, DeviceId{device}, {}, std::move(spans)};
  for (const int stage : stages) slot.stages.push_back(StageId{stage});
  return slot;
}

inline Phase phase_of_op(pipeline::Op op) {
  switch (op) {
    case pipeline::Op::kForward: return Phase::kForward;
    case pipeline::Op::kWeightGradient: return Phase::kWeightGradient;
    case pipeline::Op::kReduceGradient: return Phase::kAllReduce;
    case pipeline::Op::kBackward:
    case pipeline::Op::kInputGradient: break;
  }
  return Phase::kBackward;
}

// What stands around a pass.
struct AroundPass {
  Nanoseconds before = 0;     // from the step's begin to the first action
  Nanoseconds optimizer = 0;  // of each stage
  Nanoseconds after = 0;      // from the pass to the optimizer, and from it to the step's end
};

// An action's spans: its wait since the device was free, its work, what it sends. Messages take no time.
inline void add_action(StepSpans::Slot& slot, const pipeline::Action& action, int stages, Nanoseconds free,
                       Nanoseconds begin, Nanoseconds end) {
  const int stage = index(action.stage), micro_batch = index(action.micro_batch);
  if (std::ranges::find(slot.stages, action.stage) == slot.stages.end()) slot.stages.push_back(action.stage);
  const auto add = [&](Phase phase, Nanoseconds from, Nanoseconds to) {
    const bool is_sum = phase == Phase::kAllReduce;
    slot.spans.push_back(span_of(phase, from, to, stage, is_sum ? -1 : micro_batch));
  };
  const bool is_forward = action.op == pipeline::Op::kForward, is_backward = makes_input_gradient(action.op);
  const bool has_next = stage + 1 < stages, has_previous = stage > 0;
  if (is_forward ? has_previous : is_backward && has_next) add(Phase::kReceiveWait, free, begin);
  add(phase_of_op(action.op), begin, end);
  if (is_forward ? has_next : is_backward && has_previous) add(Phase::kSend, end, end);
}

// The schedule as the executor would have recorded it, had its actions run when the simulator says.
// Requires: times of whole nanoseconds, no pairs that overlap.
inline StepSpans recorded_step(const pipeline::Schedule& schedule, const pipeline::Simulation& simulation,
                               const AroundPass& around = {}) {
  StepSpans step{.step = 1};
  const Nanoseconds pass_end = around.before + static_cast<Nanoseconds>(simulation.makespan);
  step.end = pass_end + around.after;
  for (std::size_t d = 0; d < schedule.devices.size(); ++d) {
    StepSpans::Slot slot = slot_of(0, static_cast<int>(d), {}, {});
    Nanoseconds free = around.before;
    for (std::size_t i = 0; i < schedule.devices[d].size(); ++i) {
      const Nanoseconds begin = around.before + static_cast<Nanoseconds>(simulation.spans[d][i].start);
      const Nanoseconds end = around.before + static_cast<Nanoseconds>(simulation.spans[d][i].end);
      add_action(slot, schedule.devices[d][i], schedule.stages, free, begin, end);
      free = end;
    }
    Nanoseconds at = pass_end + around.after;
    for (const StageId stage : slot.stages) {
      slot.spans.push_back(span_of(Phase::kOptimizer, at, at + around.optimizer, index(stage)));
      at += around.optimizer;
    }
    step.end = std::max(step.end, at + around.after);
    step.slots.push_back(std::move(slot));
  }
  return step;
}

inline RecordedProcess recorded_process(StepSpans spans) {
  RecordedProcess process{.spans = std::move(spans), .devices = {}};
  for (std::size_t slot = 0; slot < process.spans.slots.size(); ++slot)
    process.devices.push_back("cpu:" + std::to_string(slot));
  return process;
}

inline StepReplay replay_one(StepSpans spans, const StepEdits& edits = {}) {
  const std::vector<RecordedProcess> processes{recorded_process(std::move(spans))};
  return replay_step(processes, edits);
}

inline WorkEdit edit_of(WorkSelector of, double factor, double more = 0) {
  return {.text = "--scale of the test", .of = std::move(of), .factor = factor, .more = more};
}

}  // namespace sluice::tune::test
