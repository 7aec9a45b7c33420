// csv_sink: the numbers of every step as a row of metrics.csv, for spreadsheets and notebooks: the fields of a `step`
// in metrics.jsonl that are single numbers (docs/files.md), in a fixed order of columns. What is not known is an empty
// cell. Errors: those of opening the file; a disk that fills up later drops rows with a warning
// (storage/append_file.h).
#pragma once

#include <filesystem>

#include "report/run_sink.h"
#include "storage/append_file.h"

namespace sluice::report {

class CsvSink final : public RunSink {
 public:
  // metrics: of the same run, cut where it goes on: rows of later steps, which come again, are cut off too.
  CsvSink(const std::filesystem::path& file, const std::filesystem::path& metrics);

  void step(const StepReport& report) override;
  void sync() override { file_.sync(); }

 private:
  storage::AppendFile file_;
};

// "step,epoch,...\n".
[[nodiscard]] std::string csv_heading();
// A row from the fields of a step, with a line break.
[[nodiscard]] std::string csv_row(const nlohmann::ordered_json& fields);

}  // namespace sluice::report
