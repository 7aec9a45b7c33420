// step_replay: replays a recorded step with edits (step_edits.h). Each thread's work keeps its recorded order and,
// except for edits, its time; so do the gaps between pieces of work. Waits are recomputed: for a neighbouring stage's
// message, for the other threads of the process after the pass, and for all processes at an all-reduce. A bucket is
// ready when each replica reaches the point of its last backward at which it was recorded. A stage's all-reduces stay
// sequential if they were.
// Not modelled: changed contention between devices; another order of actions; the loader's work beyond its wait;
// batch-norm all-reduces, which are part of forward and backward; neighbouring steps. Pure.
// Errors: DataError if the spans are not one whole step of a training run, ConfigError for an edit that does not apply.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/recorder.h"
#include "tune/event_graph.h"
#include "tune/step_edits.h"

namespace sluice::tune {

// A step recorded by one process, with a clock that all processes share.
struct RecordedProcess {
  StepSpans spans;
  std::vector<std::string> devices;  // [slot]: "cpu:0"
};

struct StepReplay {
  Nanoseconds step = 0;  // of process 0
  std::vector<StepSpans> processes;
  // Critical path of the step by kind, process and stage, longest first; adds up to the step.
  std::vector<EventGraph::Part> path;
  // Total recorded waiting for neighbours, and the part of it after the neighbour had sent (late wake-ups).
  Nanoseconds waited = 0, waited_after_sending = 0;
};

// Seconds of the shortest all-reduce since all were ready, which approximates its fixed cost; empty without one.
[[nodiscard]] std::optional<double> shortest_sum(std::span<const RecordedProcess> processes);

[[nodiscard]] StepReplay replay_step(std::span<const RecordedProcess> processes, const StepEdits& edits = {});

}  // namespace sluice::tune
