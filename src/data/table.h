// table: rows of named texts: jsonl (an object a line; numbers count as their text), csv and tsv with a row of names.
// With lists, a cell of jsonl is a list of texts.
// Blank rows are left out. A row takes at most text::kMostRecordBytes. No LibTorch.
// Threads: next() from one at a time; cells() is const. Errors: DataError, which names file and row.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "text/record_reader.h"

namespace sluice::data {

class Table {
 public:
  // columns: names of those to read. The ending of the file says what it is: .jsonl or .ndjson, .csv, .tsv.
  Table(const std::filesystem::path& file, std::vector<std::string> columns);

  struct Row {
    std::string bytes;
    std::uint64_t number = 0;  // in the file, from 0
  };
  // Appends rows until they have `bytes` bytes together; false at the end of the file.
  bool next(std::vector<Row>& rows, std::uint64_t bytes);
  // In the order of `columns`.
  [[nodiscard]] std::vector<std::string> cells(const Row& row) const;
  // The same for jsonl whose cells are lists.
  [[nodiscard]] std::vector<std::vector<std::string>> lists(const Row& row) const;

  [[nodiscard]] double share_read() const;
  [[noreturn]] void reject(const Row& row, const std::string& what) const;  // "FILE: line 7 `what`"

 private:
  void read_head();
  // Calls take(value, column) for each column.
  void each_value(const Row& row, const std::function<void(const nlohmann::json&, const std::string&)>& take) const;
  [[nodiscard]] std::string text_of(const Row& row, const nlohmann::json& value, const std::string& column) const;
  [[noreturn]] void reject_column(const std::string& owner, const std::string& column,
                                  const std::vector<std::string>& names) const;

  std::filesystem::path path_;
  text::RecordKind kind_;
  std::vector<std::string> columns_;
  text::RecordReader reader_;
  std::vector<std::size_t> places_;  // csv: of each column
  std::size_t width_ = 0;            // csv: cells of a row
};

}  // namespace sluice::data
