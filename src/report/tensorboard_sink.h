// tensorboard_sink: writes a run's scalars and plan for TensorBoard (event_writer.h).
#pragma once

#include <filesystem>
#include <optional>
#include <span>

#include "core/scores.h"
#include "report/event_writer.h"
#include "report/run_sink.h"

namespace sluice::report {

class TensorBoardSink final : public RunSink {
 public:
  // first_step: in a resumed run, TensorBoard ignores points of earlier files from this step on. metrics:
  // metrics.jsonl, truncated at the resume position; if its last step's points are ignored, they are written again.
  // settings: the configuration, as hyper-parameters. scores: of the task.
  TensorBoardSink(const std::filesystem::path& folder, const std::filesystem::path& metrics,
                  std::optional<std::int64_t> first_step, std::span<const Setting> settings = {}, Scores scores = {});

  void plan(const RunFacts& facts, const nlohmann::ordered_json& description, std::int64_t steps_done) override;
  void step(const StepReport& report) override { scalars_of_step(report.record.step, report.fields); }
  void epoch(const EpochReport& report) override { scalars_of_epoch(report.fields); }
  void eval(const EvalRecord& record, const nlohmann::ordered_json& fields, bool ends_epoch) override;
  void summary(const SummaryReport& report) override;
  void sync() override { events_.sync(); }

 private:
  void scalars_of_epoch(const nlohmann::ordered_json& fields);
  void scalars_of_step(std::int64_t step, const nlohmann::ordered_json& fields);

  void scores_in(const nlohmann::ordered_json& fields, std::int64_t step, const char* what);

  EventWriter events_;
  Scores scores_;
};

}  // namespace sluice::report
