// trace: writes one process's steps as a file for Perfetto, chrome://tracing and HolisticTraceAnalysis ("Trace Event
// Format", https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU). It has rows for each
// stage's compute, copies and waits, a row for sums over processes, counters, and arrows from senders to receivers.
// docs/how-to/profile.md lists the requirements of each reader. Pure. Times in nanoseconds here, microseconds in the
// file.
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

struct TraceClock {
  Nanoseconds offset = 0;  // its clock minus rank 0's; the file uses rank 0's
  Nanoseconds error = 0;
};

struct TraceProcess {
  int rank = 0;
  int processes = 1;
  std::string host;
  int pid = 0;
  std::string part = {};                           // name instead of a rank: "parameter server", "worker 0"
  std::string backend = {};                        // of the sums over processes: "gloo", "nccl"; empty with one process
  std::optional<TraceClock> clock = TraceClock{};  // empty: unknown, times are by the process's own clock
  bool knows_waits = true;                         // false: it is unknown when all processes had arrived for a sum
  Nanoseconds base = 0;                            // by rank 0's clock: time 0 in the files of all processes
  Nanoseconds base_epoch = 0;                      // the same moment since 1970
};

struct TracedStep {
  StepSpans spans;
  std::map<std::pair<ReplicaId, DeviceId>, std::string> devices;  // names of the slots' devices: "cpu:0"
  std::map<std::string, double> counters = {};
  // Loop work between this step and the next: evaluation, checkpoints.
  std::vector<Span> outside = {};
};

[[nodiscard]] std::uint64_t spans_dropped(std::span<const TracedStep> steps);

[[nodiscard]] std::string trace_text(const TraceProcess& process, std::span<const TracedStep> steps);

}  // namespace sluice::profiler
