// reporter: what a run tells its user and leaves behind: lines of metrics.jsonl, TensorBoard scalars, log lines, the
// progress line of a terminal, the table at the end. Not here: what to measure (profiler/), the files' formats
// (event_writer.h, metrics_writer.h). Threads: one. Errors: those of opening the files; a disk that fills up later
// drops records with a warning, not the run.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "profiler/network.h"
#include "report/console_text.h"
#include "report/event_writer.h"
#include "report/metrics_writer.h"
#include "report/run_totals.h"
#include "storage/run_dir.h"

namespace sluice::report {

// Where a resumed run goes on in its records.
struct ReporterStart {
  MetricsPosition metrics;
  // The first whose scalars come again: what earlier files of TensorBoard have from there on is made void.
  std::optional<std::int64_t> first_step;
};

class Reporter {
 public:
  // `run_dir` must outlive it.
  Reporter(const storage::RunDir& run_dir, RunFacts facts, bool tensorboard, ReporterStart start);

  void plan(const nlohmann::ordered_json& description);
  // A metrics line for every step; a log line when `to_log`; the progress line on a terminal. An epoch's last step, and
  // the run's, ends with a summary, which the evaluation joins that follows.
  void step(const StepRecord& record, bool to_log);
  // Evaluations and checkpoints, for the table at the end.
  void outside_of_steps(const std::vector<Span>& spans);
  void eval(const EvalRecord& record);
  void event(const std::string& name, const nlohmann::ordered_json& fields);  // checkpoint, fault
  // The last line of metrics.jsonl, which is returned, and the table. `outcome`: "done", "interrupted".
  nlohmann::ordered_json summary(const std::string& outcome, std::int64_t steps_done);

  // Before a checkpoint: makes the lines so far durable and gives their end.
  [[nodiscard]] MetricsPosition sync();

  // What somebody has removed or renamed while the run writes to it: the run directory, or its metrics.jsonl.
  [[nodiscard]] std::optional<std::filesystem::path> missing() const;
  // True when another directory has taken the place of the run's.
  [[nodiscard]] bool is_replaced() const { return run_dir_.presence() == storage::RunDir::Presence::kReplaced; }

 private:
  void scalars_of_step(std::int64_t step, const nlohmann::ordered_json& fields);
  [[nodiscard]] nlohmann::ordered_json fields_of(const StepRecord& record, const profiler::NetworkRates* network) const;
  void log_step(const StepRecord& record, const profiler::NetworkRates* network);
  void draw_progress(const StepRecord& record);
  void add_to_epoch(const StepRecord& record);
  void end_epoch(const EvalRecord* evaluation);
  void log_end(const std::vector<tune::Advice>& advice) const;
  [[nodiscard]] double seconds_left(std::int64_t step) const;

  const storage::RunDir& run_dir_;
  RunFacts facts_;
  MetricsWriter metrics_;
  std::unique_ptr<EventWriter> events_;
  std::optional<EvalRecord> last_eval_;
  std::optional<StepRecord> last_step_;
  StepSums interval_;           // since the last line
  StepSums epoch_;              // of this process, of last_step_'s epoch
  bool epoch_is_over_ = false;  // and not told yet
  Nanoseconds last_drawn_ = 0;
  RunTotals totals_;   // of this process
  RunTotals settled_;  // the same without its first steps, in which memory is fetched and caches fill: for the advice
  profiler::NetworkSampler network_;
};

// Largest resident memory of this process so far, in bytes.
[[nodiscard]] std::uint64_t peak_process_memory();

}  // namespace sluice::report
