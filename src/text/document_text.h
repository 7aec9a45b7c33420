// document_text: the text of a record: a line or paragraph itself, a string of a JSON object, or a column of CSV.
// Threads: any. Errors: DataError for a record that is damaged or lacks the column, which names file and line.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "text/record_reader.h"

namespace sluice::text {

// A document of plain text: a file, a line, or what blank lines separate.
enum class DocumentRule { kFile, kLine, kBlank };
[[nodiscard]] DocumentRule document_rule(std::string_view word);  // "file", "line" or "blank"

// The cells of a row of CSV, without their quotes.
[[nodiscard]] std::vector<std::string> csv_cells(std::string_view row, char delimiter);

// How the text of a file is found. By its name: .jsonl and .ndjson, .csv, .tsv; all others are plain text.
class DocumentText {
 public:
  DocumentText(const std::filesystem::path& file, DocumentRule rule, std::string column,
               std::string option = "--column");

  [[nodiscard]] RecordKind kind() const { return kind_; }
  [[nodiscard]] bool has_head() const { return kind_ == RecordKind::kCsvRow || kind_ == RecordKind::kTsvRow; }
  // Finds the column in the first row of CSV.
  void read_head(std::string_view row);

  // The text of a record, or a part of `record`. Empty: none.
  [[nodiscard]] std::string_view text_of(std::string_view record, std::uint64_t number, std::string& scratch) const;

 private:
  std::filesystem::path path_;
  RecordKind kind_;
  bool is_json_;
  std::string column_, option_;
  std::size_t index_ = 0;  // of the column
  std::size_t width_ = 0;  // number of columns
};

}  // namespace sluice::text
