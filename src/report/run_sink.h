// run_sink: the interface for outputs of a run's records. The reporter (reporter.h) passes each record to every sink.
// It calls plan() first and at each change of plan, and summary() last. Threads: one. Errors: a full disk drops records
// with a warning.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "core/recorder.h"
#include "profiler/network.h"
#include "report/goodput.h"
#include "report/run_totals.h"
#include "report/step_record.h"

namespace sluice::report {

// Valid during step() only.
struct StepReport {
  const StepRecord& record;
  const StepSpans& spans;                // spans of this process; no slots if recording is off
  const nlohmann::ordered_json& fields;  // named as in docs/reference/files.md
  const profiler::NetworkRates* network;
  TimeLeft left = {};
  bool ends_interval = false;
};

struct EpochReport {
  const StepSums& sums;
  const StepRecord& last;
  const EvalRecord* evaluation;  // the evaluation that followed; null if there was none
  const nlohmann::ordered_json& fields;
};

struct SummaryReport {
  std::string outcome;  // "done" or "interrupted"
  std::int64_t steps_done = 0;
  double wall_s = 0;
  const RunTotals& totals;
  const Goodput& goodput;  // of the whole run
  const std::vector<tune::Advice>& advice;
  std::int64_t advice_steps = 0;  // number of last steps that the advice is based on
  std::optional<double> train_loss;
  std::optional<EvalRecord> evaluation;
  const nlohmann::ordered_json& fields;
};

class RunSink {
 public:
  RunSink() = default;
  virtual ~RunSink() = default;
  RunSink(const RunSink&) = delete;
  RunSink& operator=(const RunSink&) = delete;

  // A sink overrides the records that it handles. plan(): the facts are for the steps after `steps_done`.
  virtual void plan(const RunFacts&, const nlohmann::ordered_json& /*description*/, std::int64_t /*steps_done*/) {}
  virtual void step(const StepReport&) {}
  virtual void epoch(const EpochReport&) {}
  // ends_epoch: an epoch() that includes it follows.
  virtual void eval(const EvalRecord&, const nlohmann::ordered_json& /*fields*/, bool /*ends_epoch*/) {}
  virtual void event(const std::string&, const nlohmann::ordered_json&) {}  // checkpoint, fault, resume or transition
  virtual void summary(const SummaryReport&) {}                             // followed by sync()
  virtual void sync() {}
};

}  // namespace sluice::report
