// step_replay: a recorded step once more, with edits (step_edits.h): what it would have taken if some of its work had
// been faster or slower, or the network another one.
// Each thread's work keeps its recorded order and, but for the edits, its recorded time, and so does the time between
// two pieces of work. Waiting is worked out anew: for a neighbouring stage's message, for the other threads of the
// process before what follows the pass, for all processes at a sum. A bucket is ready when each replica has come as far
// in its last backward as it had when the bucket was recorded. A stage's sums follow one another, where they did so.
// Not in it: that devices of one machine slow each other down less or more than they did; another order of actions; the
// loader's work behind its wait; sums of batch-norm's statistics, which are part of their forward and backward; the
// steps before and after. Pure.
// Not here: reading traces (profiler/trace_steps.h). Errors: DataError for spans that are no whole step of a training
// run, ConfigError for an edit that does not fit it.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/recorder.h"
#include "tune/event_graph.h"
#include "tune/step_edits.h"

namespace sluice::tune {

// A step as one process has recorded it, by a clock that all share.
struct RecordedProcess {
  StepSpans spans;
  std::vector<std::string> devices;  // [slot]: "cpu:0"
};

struct StepReplay {
  Nanoseconds step = 0;              // of process 0
  std::vector<StepSpans> processes;  // what they would have recorded
  // What makes the step's length, by kind, process and stage, longest first; adds up to the step.
  std::vector<EventGraph::Part> path;
  // Of all recorded waiting for neighbours: how long, and how much of it came after the neighbour had sent (a thread
  // that wakes up late). Where that is little, the step's waiting is understood.
  Nanoseconds waited = 0, waited_after_sending = 0;
};

// What the shortest of a step's sums over processes took, those of a few numbers included, once all were there for it:
// it holds what every sum costs, however few bytes it carries. Seconds; nothing where there are none.
[[nodiscard]] std::optional<double> shortest_sum(std::span<const RecordedProcess> processes);

// processes: all of the run, by rank.
[[nodiscard]] StepReplay replay_step(std::span<const RecordedProcess> processes, const StepEdits& edits = {});

}  // namespace sluice::tune
