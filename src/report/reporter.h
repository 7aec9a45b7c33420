// reporter: makes the records of a run, each once, and hands them to its sinks (run_sink.h): metrics.jsonl, and as
// configured TensorBoard, metrics.csv, the console. It adds up what the summary and the advice need.
// Not here: what to measure (profiler/), the sinks' forms. Threads: one. Errors: those of opening the files; a disk
// that fills up later drops records with a warning, not the run.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "profiler/network.h"
#include "report/event_writer.h"
#include "report/metrics_sink.h"
#include "report/prediction.h"
#include "report/run_sink.h"
#include "report/stage_times.h"
#include "storage/run_dir.h"

namespace sluice::report {

// Where a resumed run goes on in its records.
struct ReporterStart {
  MetricsPosition metrics;
  // The first whose scalars come again: what earlier files of TensorBoard have from there on is made void.
  std::optional<std::int64_t> first_step;
};

// Besides metrics.jsonl and the console.
struct SinkChoice {
  bool tensorboard = false;
  bool csv = false;
  std::vector<Setting> settings = {};  // the configuration, for TensorBoard's hyper-parameters
};

class Reporter {
 public:
  // `run_dir` must outlive it.
  Reporter(const storage::RunDir& run_dir, const SinkChoice& choice, const ReporterStart& start);

  // Before the first step, and where the plan changes in the run. facts: of the steps that follow.
  void plan(RunFacts facts, const nlohmann::ordered_json& description, std::int64_t steps_done = 0);
  // Of the present plan, after it was told.
  void prediction(const Prediction& prediction);
  // `ends_interval`: a line of the console is due. An epoch's last step, and the run's, ends with a summary, which the
  // evaluation joins that follows.
  void step(const StepRecord& record, const StepSpans& spans, bool ends_interval);
  // Evaluations and checkpoints, for the table at the end.
  void outside_of_steps(const std::vector<Span>& spans);
  void eval(const EvalRecord& record);
  // Mean milliseconds of the steps under the present plan, without its first ones; nothing before there are enough.
  [[nodiscard]] std::optional<double> step_ms_of_plan() const;
  void event(const std::string& name, const nlohmann::ordered_json& fields);  // checkpoint, fault, transition
  // The last record, which is returned. `outcome`: "done", "interrupted".
  nlohmann::ordered_json summary(const std::string& outcome, std::int64_t steps_done);

  // Before a checkpoint: makes the lines so far durable and gives their end.
  [[nodiscard]] MetricsPosition sync();

  // What somebody has removed or renamed while the run writes to it: the run directory, or its metrics.jsonl.
  [[nodiscard]] std::optional<std::filesystem::path> missing() const;
  // True when another directory has taken the place of the run's.
  [[nodiscard]] bool is_replaced() const { return run_dir_.presence() == storage::RunDir::Presence::kReplaced; }

 private:
  void add_to_epoch(const StepRecord& record);
  void end_epoch(const EvalRecord* evaluation);
  // Of a summary. peaks: of memory, by device.
  [[nodiscard]] nlohmann::ordered_json predicted_fields(const nlohmann::ordered_json& peaks) const;
  // Until the run's end: the steps as those under the present plan, evaluations and checkpoints as those so far.
  [[nodiscard]] TimeLeft time_left(const StepRecord& record) const;
  [[nodiscard]] bool is_settled() const { return settled_.steps > 0; }

  const storage::RunDir& run_dir_;
  MetricsSink* metrics_;                         // the first of sinks_
  std::vector<std::unique_ptr<RunSink>> sinks_;  // in the order in which they are told
  RunFacts facts_;
  std::optional<EvalRecord> last_eval_;
  std::optional<StepRecord> last_step_;
  StepSums epoch_;              // of this process, of last_step_'s epoch
  bool epoch_is_over_ = false;  // and not told yet
  RunTotals totals_;            // of this process
  // The same of the last plan, and without its first steps, in which memory is fetched and caches fill: for the advice
  // and the time that is left.
  RunTotals of_plan_, settled_;
  StageTimes stages_of_plan_, settled_stages_;  // likewise
  std::optional<Prediction> prediction_;        // of the last plan
  // When the first evaluation began, which may take more than a step; nothing: there was none.
  std::optional<nlohmann::ordered_json> peaks_of_steps_;
  int plans_ = 0;  // told so far: peaks of memory are of all of them
  profiler::NetworkSampler network_;
};

}  // namespace sluice::report
