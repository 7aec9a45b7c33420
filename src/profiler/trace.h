// trace: what one process did in some steps, as a file that Perfetto, chrome://tracing and HolisticTraceAnalysis read
// (https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU, "Trace Event Format"): a row for
// each stage's computing, copies and waits, one for the sums over the processes, counters, arrows from who sends to who
// receives. What makes each reader understand it is said in docs/how-to/profile.md.
// Not here: recording (core/recorder.h), where files lie and whose clock is whose (train/trace/step_trace.h).
// Pure. Times in nanoseconds here, microseconds in the file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/ids.h"
#include "core/recorder.h"

namespace sluice::profiler {

// Of one process, beside that of rank 0.
struct TraceClock {
  Nanoseconds offset = 0;  // its clock minus rank 0's; what is written is by rank 0's
  Nanoseconds error = 0;   // the offset is off by this at most
};

struct TraceProcess {
  int rank = 0;
  int processes = 1;
  std::string host;
  int pid = 0;
  std::string part = {};     // where ranks are no name: "parameter server", "worker 0"
  std::string backend = {};  // of the sums over the processes: "gloo", "nccl"; empty with one process
  std::optional<TraceClock> clock = TraceClock{};  // nothing: not known, times are by its own
  bool knows_waits = true;                         // false: nobody knows when all were there for a sum
  Nanoseconds base = 0;        // by rank 0's clock: the moment that is 0 in the files of all processes
  Nanoseconds base_epoch = 0;  // the same, since 1970
};

struct TracedStep {
  StepSpans spans;
  std::map<std::pair<ReplicaId, DeviceId>, std::string> devices;  // names of the slots' devices: "cpu:0"
  std::map<std::string, double> counters = {};                    // by name, as of the step's end
  std::vector<Span> outside = {};  // what the loop did between this step and the next: evaluation, checkpoints
};

// That these steps have lost: not 0, and the trace does not tell all.
[[nodiscard]] std::uint64_t spans_dropped(std::span<const TracedStep> steps);

// The whole file.
[[nodiscard]] std::string trace_text(const TraceProcess& process, std::span<const TracedStep> steps);

}  // namespace sluice::profiler
