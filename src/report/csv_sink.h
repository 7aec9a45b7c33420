// csv_sink: metrics.csv (a row per step), evaluations.csv and pushes.csv (per push to a parameter server): the numeric
// fields of metrics.jsonl (docs/reference/files.md) in a fixed order; unknown values are empty. Errors: StorageError at
// opening; later a full disk drops rows with a warning (storage/append_file.h).
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/scores.h"
#include "report/run_sink.h"
#include "storage/append_file.h"

namespace sluice::report {

using CsvColumns = std::vector<std::string>;

[[nodiscard]] CsvColumns step_columns(const Scores& scores);
[[nodiscard]] CsvColumns push_columns();
[[nodiscard]] CsvColumns eval_columns(const Scores& scores);
[[nodiscard]] std::string csv_heading(const CsvColumns& columns);
[[nodiscard]] std::string csv_row(const CsvColumns& columns, const nlohmann::ordered_json& fields);

class CsvTable {
 public:
  // metrics: metrics.jsonl of the run, truncated at the resume position. Rows after its last `event` are removed,
  // because they will be repeated.
  CsvTable(const std::filesystem::path& file, const std::filesystem::path& metrics, CsvColumns columns,
           const char* event = "step");

  void add(const nlohmann::ordered_json& fields) { (void)file_.append(csv_row(columns_, fields)); }
  void sync() { file_.sync(); }

 private:
  CsvColumns columns_;
  storage::AppendFile file_;
};

class CsvSink final : public RunSink {
 public:
  // steps: path of metrics.csv; the other files are in the same folder.
  CsvSink(const std::filesystem::path& steps, std::filesystem::path metrics, const Scores& scores);

  void step(const StepReport& report) override { steps_.add(report.fields); }
  void eval(const EvalRecord& record, const nlohmann::ordered_json& fields, bool ends_epoch) override;
  void event(const std::string& name, const nlohmann::ordered_json& fields) override;
  void sync() override;

 private:
  [[nodiscard]] std::filesystem::path evaluations_file() const;
  void open_evaluations();

  std::filesystem::path metrics_;
  CsvColumns of_evaluations_;
  CsvTable steps_;
  std::optional<CsvTable> pushes_, evaluations_;
};

}  // namespace sluice::report
