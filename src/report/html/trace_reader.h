// trace_reader: what each stage did in one traced step, from the traces of a run's processes (RunDir::traces()).
// Takes every bar that names its phase. Memory is bounded whatever the file holds. Not here: writing traces, drawing
// (gantt.h). Errors: none; what cannot be read is a sentence.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace sluice::report {

struct TraceBar {
  double begin_us = 0;
  double length_us = 0;
  std::string phase;
  int stage = -1;  // -1: of none
  int replica = -1;
  int micro_batch = -1;
  int worker = -1;       // of those that take turns
  std::int64_t pid = 0;  // the trace's row of a device
};

struct Trace {
  std::map<std::int64_t, std::vector<TraceBar>> steps;  // the first few
  std::string problem;                                  // what of the file could not be read; empty: nothing
};

// unpacked_limit: bytes after which reading ends.
[[nodiscard]] Trace read_trace(const std::filesystem::path& file, std::int64_t unpacked_limit = 256'000'000);

}  // namespace sluice::report
