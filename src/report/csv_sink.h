// csv_sink: a run's numbers for spreadsheets and notebooks: metrics.csv has a row for every step, evaluations.csv one
// for every evaluation, pushes.csv one for every push to a parameter server: the fields of a `step`, `eval` or `push`
// in metrics.jsonl that are single numbers (docs/files.md), in a fixed order of columns. What is not known is an empty
// cell. Errors: those of opening a file; a disk that fills up later drops rows with a warning (storage/append_file.h).
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "report/run_sink.h"
#include "storage/append_file.h"

namespace sluice::report {

using CsvColumns = std::span<const char* const>;

[[nodiscard]] CsvColumns step_columns();
[[nodiscard]] CsvColumns push_columns();
[[nodiscard]] CsvColumns eval_columns();
// "step,epoch,...\n".
[[nodiscard]] std::string csv_heading(CsvColumns columns);
// A row from the fields of an event, with a line break.
[[nodiscard]] std::string csv_row(CsvColumns columns, const nlohmann::ordered_json& fields);

// One file; its first column is the number of the step.
class CsvTable {
 public:
  // metrics: of the same run, cut where it goes on: rows after its last `event`, which come again, are cut off too.
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
  // steps: metrics.csv; the others stand beside it.
  CsvSink(const std::filesystem::path& steps, std::filesystem::path metrics);

  void step(const StepReport& report) override { steps_.add(report.fields); }
  void eval(const EvalRecord& record, const nlohmann::ordered_json& fields, bool ends_epoch) override;
  void event(const std::string& name, const nlohmann::ordered_json& fields) override;
  void sync() override;

 private:
  [[nodiscard]] std::filesystem::path evaluations_file() const;
  void open_evaluations();

  std::filesystem::path metrics_;
  CsvTable steps_;
  std::optional<CsvTable> pushes_, evaluations_;  // from the first one on
};

}  // namespace sluice::report
