// trace_steps: reads back the steps of a trace file (trace.h). Time 0 is the same in all files of a run. Ignores
// foreign events. Threads: any, each with its own stream. Errors: DataError for another kind of file.
#pragma once

#include <istream>
#include <string>
#include <vector>

#include "profiler/trace.h"

namespace sluice::profiler {

struct TraceOfProcess {
  int rank = 0;
  int processes = 1;
  bool has_own_clock = false;     // the clock was not compared with others: a parameter server or its worker
  Nanoseconds base_epoch = 0;     // since 1970: time 0 of the file; the same in all files of a run
  std::vector<TracedStep> steps;  // by number, with only spans and device names
};

[[nodiscard]] TraceOfProcess read_trace_steps(std::istream& in, const std::string& file);

}  // namespace sluice::profiler
