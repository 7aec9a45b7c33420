// console_sink: console output of a training run; console_text.h formats it.
#pragma once

#include "report/run_sink.h"

namespace sluice::report {

class ConsoleSink final : public RunSink {
 public:
  explicit ConsoleSink(std::string run_dir) : run_dir_(std::move(run_dir)) {}

  void plan(const RunFacts& facts, const nlohmann::ordered_json&, std::int64_t) override { facts_ = facts; }
  void step(const StepReport& report) override;
  void epoch(const EpochReport& report) override;
  void eval(const EvalRecord& record, const nlohmann::ordered_json& fields, bool ends_epoch) override;
  void summary(const SummaryReport& report) override;

 private:
  void draw_progress(const StepReport& report);
  void log_end(const SummaryReport& report) const;

  std::string run_dir_;
  RunFacts facts_;
  StepSums interval_;
  Nanoseconds last_drawn_ = 0;
  bool has_warned_ = false;
};

}  // namespace sluice::report
