// trace_steps: the steps of a trace file that trace.h has written, read back as they were recorded, by the file's own
// clock, whose 0 is the same in all files of a run. Events of others in it are passed over.
// Not here: unpacking a file (storage/unpacked_file.h), bars to draw (report/html/trace_reader.h).
// Threads: any, each with its own stream. Errors: DataError for what is no such file, or is not whole.
#pragma once

#include <istream>
#include <string>
#include <vector>

#include "profiler/trace.h"

namespace sluice::profiler {

struct TraceOfProcess {
  int rank = 0;
  int processes = 1;
  bool has_own_clock = false;     // nobody has measured it beside the others': of a parameter server, or its worker
  Nanoseconds base_epoch = 0;     // since 1970, the moment that is 0 in it; one in all files of a run
  std::vector<TracedStep> steps;  // with spans and names of devices alone; by their numbers
};

// file: for messages.
[[nodiscard]] TraceOfProcess read_trace_steps(std::istream& in, const std::string& file);

}  // namespace sluice::profiler
