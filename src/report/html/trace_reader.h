// trace_reader: reads the traces of a run's processes (RunDir::traces()) and returns the bars of each stage in a step.
// Takes every bar with a phase. Memory is bounded for any file. Never throws; problems are returned as sentences.
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
  int stage = -1;  // -1: no stage
  int replica = -1;
  int micro_batch = -1;
  int worker = -1;
  std::int64_t pid = 0;  // row of a device in the trace
};

struct Trace {
  std::map<std::int64_t, std::vector<TraceBar>> steps;  // the first few steps
  std::string problem;                                  // why part of the file could not be read; empty if all was
};

[[nodiscard]] Trace read_trace(const std::filesystem::path& file, std::int64_t unpacked_limit = 256'000'000);

}  // namespace sluice::report
