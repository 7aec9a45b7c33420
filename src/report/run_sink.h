// run_sink: the contract of whatever takes a run's records: metrics.jsonl, metrics.csv, TensorBoard, the console.
// The reporter (reporter.h) makes each record once and hands it to every sink. plan() comes first, and again where the
// plan changes in the run; summary() comes last.
// Threads: one. Errors: a sink whose disk is full warns and drops records; none of them ends the run.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "core/recorder.h"
#include "profiler/network.h"
#include "report/run_totals.h"
#include "report/step_record.h"

namespace sluice::report {

// A step, and what all sinks need of it. The references live while step() runs.
struct StepReport {
  const StepRecord& record;
  const StepSpans& spans;                 // of this process; no slots where nothing is recorded
  const nlohmann::ordered_json& fields;   // by the names of docs/files.md
  const profiler::NetworkRates* network;  // null: not known
  TimeLeft left = {};
  bool ends_interval = false;  // a line of the console is due
};

// The training steps of an epoch as far as this process has run them.
struct EpochReport {
  const StepSums& sums;
  const StepRecord& last;
  const EvalRecord* evaluation;  // the one that followed; null: none did
  const nlohmann::ordered_json& fields;
};

// How a run ended.
struct SummaryReport {
  std::string outcome;  // "done", "interrupted"
  std::int64_t steps_done = 0;
  double wall_s = 0;
  const RunTotals& totals;
  const std::vector<tune::Advice>& advice;
  std::int64_t advice_steps = 0;         // the last steps, from which the advice follows
  std::optional<double> train_loss;      // of the last epoch
  std::optional<EvalRecord> evaluation;  // the last one
  const nlohmann::ordered_json& fields;
};

class RunSink {
 public:
  RunSink() = default;
  virtual ~RunSink() = default;
  RunSink(const RunSink&) = delete;
  RunSink& operator=(const RunSink&) = delete;

  // A sink overrides the records that it handles.
  // The facts are those of the steps that follow; so many are done.
  virtual void plan(const RunFacts&, const nlohmann::ordered_json& /*description*/, std::int64_t /*steps_done*/) {}
  virtual void step(const StepReport&) {}
  virtual void epoch(const EpochReport&) {}
  // ends_epoch: an epoch() with it follows.
  virtual void eval(const EvalRecord&, const nlohmann::ordered_json& /*fields*/, bool /*ends_epoch*/) {}
  virtual void event(const std::string&, const nlohmann::ordered_json&) {}  // checkpoint, fault, resume, transition
  virtual void summary(const SummaryReport&) {}                             // a sync() follows
  virtual void sync() {}                                                    // makes the records so far durable
};

}  // namespace sluice::report
