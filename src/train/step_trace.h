// step_trace: `--trace`: keeps what the recorder saw of some steps, and writes it when they are done: a trace file
// (profiler/trace.h) for each process, all by rank 0's clock. Rank 0 writes them all, so no disk need be shared; a
// worker of a parameter server writes its own. Where a run fails before, rank 0 writes what it has itself.
// Threads: one, and any for rescue(). Errors: ConfigError for steps that are none; those of the communicator. A disk
// that is full costs the trace and gives a warning.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/clock_offset.h"
#include "comm/communicator.h"
#include "core/plan.h"
#include "core/step_stats.h"
#include "profiler/network.h"
#include "profiler/trace.h"
#include "train/peers.h"
#include "train/setup.h"
#include "train/trace_files.h"

namespace sluice::train {

// Steps by their numbers, from 1, the last one included.
struct StepRange {
  std::int64_t first = 1;
  std::int64_t last = 0;

  [[nodiscard]] bool is_empty() const { return last < first; }
  bool operator==(const StepRange&) const = default;
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

// FILE of `profile --trace`: with several processes the rank stands before its ending.
[[nodiscard]] std::filesystem::path trace_file_beside(const std::filesystem::path& file, int rank, int processes);
// Readers refuse other endings.
void check_trace_file(const std::filesystem::path& file);

// --trace of a process that is not rank 0: where rank 0's is another one, a warning.
void warn_of_own_trace(const Setup& setup, bool is_wanted, bool is_rank_0s);
// Of a run whose steps were all done before.
void warn_of_no_steps(const StepRange& steps, std::int64_t steps_done);

// Whose trace it is.
struct TracePart {
  int rank = 0;
  int processes = 1;
  std::string name = {};  // of the parts of a run on a parameter server, whose clocks are their own
};
[[nodiscard]] TracePart part_of_process(const Setup& setup);
[[nodiscard]] TracePart part_of_server(const Setup& setup);
[[nodiscard]] TracePart part_of_worker(const Setup& setup, int worker);

struct TraceOptions {
  StepRange steps = {};
  TracePart part = {};
  TraceFile file;                      // of each rank, which rank 0 writes
  std::filesystem::path run_dir = {};  // traces there of ranks beyond this run's are removed; empty: none are
};
// Into a run directory. run_dir: empty in processes that keep no records.
[[nodiscard]] TraceOptions traces_of_run(const StepRange& steps, TracePart part, const std::filesystem::path& run_dir);

class StepTrace {
 public:
  // others: of all processes; null: there are none.
  StepTrace(const Setup& setup, const comm::Communicator* others, TraceOptions options);

  // After every step, with all its spans. After the first and the last one of the range all processes together measure
  // their clocks; after the last one they make their files.
  void add(const StepSpans& spans, const StepStats& stats, const Plan& plan);
  // What the loop did since the last step.
  void add_outside(const std::vector<Span>& spans);
  // At the end of the run, in all processes: what there is of a range that was not reached.
  void finish();
  // Where the run fails, or another thread is about to end the process: what rank 0, or a worker, has itself, without
  // the others. Waits for nobody but the disk. Nothing where the trace is written.
  void rescue() noexcept;

 private:
  void write();
  [[nodiscard]] profiler::TraceProcess own_process() const;
  void agree_with_others(profiler::TraceProcess& process);
  [[nodiscard]] std::string text_of(const profiler::TraceProcess& process) const;
  void remove_stale(std::size_t processes) const;
  [[nodiscard]] std::string none_was_made() const;

  const Setup& setup_;
  const comm::Communicator* others_;
  const TraceOptions options_;
  profiler::NetworkSampler network_;
  std::optional<comm::ClockOffset> clock_;  // after the first traced step
  std::mutex mutex_;
  // Both are changed under the mutex: by the thread of the loop, and is_done_ by rescue(), too.
  std::atomic<bool> is_done_;
  std::vector<profiler::TracedStep> steps_;
};

// Makes these steps; whatever ends them, and who else ends this process meanwhile: what was traced is written.
void run_traced(StepTrace& trace, const std::function<void()>& steps);
void run_traced(Peers& peers, StepTrace& trace, const std::function<void()>& steps);

}  // namespace sluice::train
