// step_trace: `--trace`: keeps the spans of some steps. Rank 0 writes a file (profiler/trace.h) for each process by its
// own clock; a worker of a parameter server writes its own. Threads: one, and any for rescue(). Errors: the
// communicator's. A full disk loses the trace with a warning.
#pragma once

#include <atomic>
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

struct TracePart {
  int rank = 0;
  int processes = 1;
  std::string name = {};       // "parameter server" or "worker 0"; empty: named by its rank
  bool has_own_clock = false;  // its offset from rank 0's clock is not measured
};
[[nodiscard]] TracePart part_of_process(const Setup& setup);
[[nodiscard]] TracePart part_of_server(const Setup& setup);
[[nodiscard]] TracePart part_of_worker(const Setup& setup, int worker);

struct TraceOptions {
  StepRange steps = {};
  TracePart part = {};
  TraceFile file;
  std::filesystem::path run_dir = {};  // the run directory to clear of traces of ranks beyond this run's; empty: none
};
[[nodiscard]] TraceOptions traces_of_run(const StepRange& steps, TracePart part, const std::filesystem::path& run_dir);

class StepTrace final : public StepObserver {
 public:
  // others: connects all processes; null if there are none. Requires: `setup` and `others` outlive this object.
  StepTrace(const Setup& setup, const comm::Communicator* others, TraceOptions options);

  // Call it after every step. All processes measure their clocks together after the first and the last step of the
  // range, and then write their files.
  void add(const StepSpans& spans, const StepStats& stats, const Plan& plan);
  void after_step(const SeenStep& step) override { add(step.spans, step.stats, step.plan); }
  void outside_of_steps(const std::vector<Span>& spans) override;
  void finish() override;
  // After a failure, writes only this process's part, in rank 0 or a worker, unless the trace is written.
  void rescue() noexcept;

 private:
  void write();
  [[nodiscard]] profiler::TraceProcess own_process() const;
  void agree_with_others(profiler::TraceProcess& process);
  [[nodiscard]] std::string text_of(const profiler::TraceProcess& process) const;
  void remove_stale(std::size_t processes) const;
  [[nodiscard]] std::string none_was_made() const;
  void warn_of_missing() const;

  const Setup& setup_;
  const comm::Communicator* others_;
  const TraceOptions options_;
  profiler::NetworkSampler network_;
  std::optional<comm::ClockOffset> clock_;
  std::mutex mutex_;
  // Both change only under mutex_. rescue() also sets is_done_.
  std::atomic<bool> is_done_;
  std::vector<profiler::TracedStep> steps_;
};

// Runs `steps`. Writes the trace however they end, also if another thread ends this process.
void run_traced(StepTrace& trace, const std::function<void()>& steps);
void run_traced(Peers& peers, StepTrace& trace, const std::function<void()>& steps,
                const Peers::BeforeEnd& before_end = {});

}  // namespace sluice::train
