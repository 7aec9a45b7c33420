// reporter: creates each record of a run once and passes it to the sinks (run_sink.h): metrics.jsonl, the console and,
// if configured, TensorBoard and metrics.csv. Adds up the totals for the summary and the advice. Threads: one. Errors:
// StorageError at opening; later a full disk drops records with a warning.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "profiler/network.h"
#include "report/event_writer.h"
#include "report/goodput.h"
#include "report/metrics_sink.h"
#include "report/prediction.h"
#include "report/run_sink.h"
#include "report/stage_times.h"
#include "storage/run_dir.h"

namespace sluice::report {

struct ReporterStart {
  MetricsPosition metrics;
  // First step that will be repeated; TensorBoard ignores points of earlier files from there on.
  std::optional<std::int64_t> first_step;
};

struct SinkChoice {
  bool tensorboard = false;
  bool csv = false;
  std::vector<Setting> settings = {};
  Scores scores = {};  // of the task, for CSV files and TensorBoard
};

class Reporter {
 public:
  // `run_dir` must outlive the reporter.
  Reporter(const storage::RunDir& run_dir, const SinkChoice& choice, const ReporterStart& start);

  // Call before the first step and at each change of plan. facts: for the steps that follow.
  void plan(RunFacts facts, const nlohmann::ordered_json& description, std::int64_t steps_done = 0);
  void prediction(const Prediction& prediction);
  // `ends_interval`: a console line is due. The last step of an epoch or run ends with a summary, which also includes
  // the evaluation that follows.
  void step(const StepRecord& record, const StepSpans& spans, bool ends_interval);
  void outside_of_steps(const std::vector<Span>& spans);
  void eval(const EvalRecord& record);
  // Mean milliseconds per step of the current plan, without its first steps; nothing until there are enough steps.
  [[nodiscard]] std::optional<double> step_ms_of_plan() const;
  void event(const std::string& name, const nlohmann::ordered_json& fields);
  nlohmann::ordered_json summary(const std::string& outcome, std::int64_t steps_done);

  // Makes the lines so far durable and returns their end. Call before a checkpoint.
  [[nodiscard]] MetricsPosition sync();

  // Returns the run directory or its metrics.jsonl if it was removed or renamed while the run writes to it.
  [[nodiscard]] std::optional<std::filesystem::path> missing() const;
  // True if another directory replaced the run's.
  [[nodiscard]] bool is_replaced() const { return run_dir_.presence() == storage::RunDir::Presence::kReplaced; }

 private:
  void add_to_epoch(const StepRecord& record);
  void end_epoch(const EvalRecord* evaluation);
  [[nodiscard]] Goodput goodput_so_far() const;
  // The field "predicted" of a summary. peaks: peak memory by device.
  [[nodiscard]] nlohmann::ordered_json predicted_fields(const nlohmann::ordered_json& peaks) const;
  // Covers the steps left under the current plan, and evaluations and checkpoints at their times so far.
  [[nodiscard]] TimeLeft time_left(const StepRecord& record) const;
  [[nodiscard]] bool is_settled() const { return settled_.steps > 0; }

  const storage::RunDir& run_dir_;
  MetricsSink* metrics_;
  std::vector<std::unique_ptr<RunSink>> sinks_;
  RunFacts facts_;
  std::optional<EvalRecord> last_eval_;
  std::optional<StepRecord> last_step_;
  StepSums epoch_;              // this process's steps of last_step_'s epoch
  bool epoch_is_over_ = false;  // its summary is not yet reported
  RunTotals totals_;            // steps of this process
  // Totals under the last plan, and without its first steps, in which memory is allocated and caches fill. Used for the
  // advice and the remaining time.
  RunTotals of_plan_, settled_;
  StageTimes stages_of_plan_, settled_stages_;
  std::optional<Prediction> prediction_;
  // Peak memory of the steps, read just before the first evaluation, which may need more. Empty until then.
  std::optional<nlohmann::ordered_json> peaks_of_steps_;
  bool evaluated_first_ = false;  // a resumed run may evaluate before its first step; then the peaks include both
  int plans_ = 0;                 // number of plans so far; peak memory covers all of them
  profiler::NetworkSampler network_;
};

}  // namespace sluice::report
