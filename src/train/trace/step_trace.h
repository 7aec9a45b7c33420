// step_trace: `--trace`: keeps what the recorder saw of some steps, and writes it when they are done: a trace file
// (profiler/trace.h) for each process, all by rank 0's clock. Rank 0 writes them all, so no disk need be shared; a
// worker of a parameter server writes its own. Where a run fails before, rank 0 writes what it has itself.
// Not here: which steps (traced_steps.h). Threads: one, and any for rescue(). Errors: those of the communicator. A disk
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
#include "train/setup/peers.h"
#include "train/setup/setup.h"
#include "train/trace/step_observer.h"
#include "train/trace/trace_files.h"
#include "train/trace/traced_steps.h"

namespace sluice::train {

// Whose trace it is.
struct TracePart {
  int rank = 0;
  int processes = 1;
  std::string name = {};       // "parameter server" or "worker 0"; empty: a process that its rank names
  bool has_own_clock = false;  // nobody measures it beside rank 0's
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

class StepTrace final : public StepObserver {
 public:
  // others: of all processes; null: there are none. Requires: it and the setup outlive this.
  StepTrace(const Setup& setup, const comm::Communicator* others, TraceOptions options);

  // After every step, with all its spans. After the first and the last one of the range all processes together measure
  // their clocks; after the last one they make their files.
  void add(const StepSpans& spans, const StepStats& stats, const Plan& plan);
  void after_step(const SeenStep& step) override { add(step.spans, step.stats, step.plan); }
  void outside_of_steps(const std::vector<Span>& spans) override;
  // What there is of a range that was not reached.
  void finish() override;
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
  void warn_of_missing() const;  // where the range was not made whole

  const Setup& setup_;
  const comm::Communicator* others_;
  const TraceOptions options_;
  profiler::NetworkSampler network_;
  std::optional<comm::ClockOffset> clock_;  // after the first traced step
  std::mutex mutex_;
  // Both change under the mutex; rescue() sets is_done_, too.
  std::atomic<bool> is_done_;
  std::vector<profiler::TracedStep> steps_;
};

// Makes these steps; whatever ends them, and who else ends this process meanwhile: what was traced is written.
void run_traced(StepTrace& trace, const std::function<void()>& steps);
// before_end: what else Peers::before_end is to do while the steps run, before the trace is written.
void run_traced(Peers& peers, StepTrace& trace, const std::function<void()>& steps,
                const Peers::BeforeEnd& before_end = {});

}  // namespace sluice::train
