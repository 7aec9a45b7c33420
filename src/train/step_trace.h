// step_trace: `--trace`: keeps what the recorder saw of some steps, and writes it when they are done: a trace file
// (profiler/trace.h) for each process, all by rank 0's clock. Rank 0 writes them all, so no disk need be shared; a
// worker of a parameter server writes its own.
// Threads: one. Errors: ConfigError for steps that are none; those of the communicator. A disk that is full costs the
// trace and gives a warning.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/plan.h"
#include "core/step_stats.h"
#include "profiler/network.h"
#include "profiler/trace.h"
#include "train/setup.h"
#include "train/trace_files.h"

namespace sluice::train {

// Steps by their numbers, from 1, the last one included.
struct StepRange {
  std::int64_t first = 1;
  std::int64_t last = 0;

  [[nodiscard]] bool is_empty() const { return last < first; }
};

// Of a run: of --trace, and those that LibTorch's profiler sees (torch_profile.h).
struct TracedSteps {
  StepRange own = {};
  StepRange torch = {};
};

// "10..14", or "10" for that step alone; empty: none. option: for the message.
[[nodiscard]] StepRange parse_step_range(const std::string& text, const char* option);

// Traces need spans.
void check_trace(bool is_wanted, const config::Config& config);

// "trace.rank0.json.gz" in a run directory.
[[nodiscard]] std::string trace_file_name(int rank);
// FILE of `profile --trace`: with several processes the rank stands before its ending.
[[nodiscard]] std::filesystem::path trace_file_beside(const std::filesystem::path& file, int rank, int processes);
// Readers refuse other endings.
void check_trace_file(const std::filesystem::path& file);

class StepTrace {
 public:
  using File = TraceFile;

  // others: of all processes; null: there are none. file: of each rank, which rank 0 writes.
  StepTrace(const Setup& setup, const comm::Communicator* others, StepRange steps, File file);

  // After every step, with all its spans. After the last one of the range all processes together make their files.
  void add(const StepSpans& spans, const StepStats& stats, const Plan& plan);
  // At the end of the run, in all processes: what there is of a range that was not reached.
  void finish();

 private:
  void write();

  const Setup& setup_;
  const comm::Communicator* others_;
  StepRange range_;
  File file_;
  bool is_done_;
  std::vector<profiler::TracedStep> steps_;
  profiler::NetworkSampler network_;
};

}  // namespace sluice::train
