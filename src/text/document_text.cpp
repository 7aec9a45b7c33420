#include "text/document_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"

namespace sluice::text {
namespace {

RecordKind kind_of(const std::string& ending, DocumentRule rule) {
  if (ending == ".csv") return RecordKind::kCsvRow;
  if (ending == ".tsv") return RecordKind::kTsvRow;
  if (ending == ".jsonl" || ending == ".ndjson" || rule == DocumentRule::kLine) return RecordKind::kLine;
  return rule == DocumentRule::kFile ? RecordKind::kFile : RecordKind::kParagraph;
}

}  // namespace

DocumentRule document_rule(std::string_view word) {
  if (word == "line") return DocumentRule::kLine;
  return word == "blank" ? DocumentRule::kBlank : DocumentRule::kFile;
}

std::vector<std::string> csv_cells(std::string_view row, char delimiter) {
  if (row.ends_with('\r')) row.remove_suffix(1);
  std::vector<std::string> fields(1);
  CsvScanner scanner(delimiter);
  for (const char c : row) {
    switch (scanner.next(c)) {
      case CsvScanner::Is::kText: fields.back() += c; break;
      case CsvScanner::Is::kFieldEnd: fields.emplace_back(); break;
      default: break;
    }
  }
  return fields;
}

DocumentText::DocumentText(const std::filesystem::path& file, DocumentRule rule, std::string column, std::string option)
    : path_(file),
      kind_(kind_of(file.extension().string(), rule)),
      is_json_(file.extension() == ".jsonl" || file.extension() == ".ndjson"),
      column_(std::move(column)),
      option_(std::move(option)) {}

void DocumentText::read_head(std::string_view row) {
  const auto names = csv_cells(row, delimiter_of(kind_));
  const auto found = std::find(names.begin(), names.end(), column_);
  if (found == names.end()) {
    throw DataError(path_.string(), ": has no column \"", printable(column_), "\", but \"",
                    printable(join(names, "\", \"")), "\"; choose one with ", option_);
  }
  index_ = static_cast<std::size_t>(found - names.begin());
  width_ = names.size();
}

std::string_view DocumentText::text_of(std::string_view record, std::uint64_t number, std::string& scratch) const {
  if (kind_ == RecordKind::kFile) return record;
  if (record.ends_with('\n')) record.remove_suffix(1);
  if (record.ends_with('\r')) record.remove_suffix(1);
  if (record.find_first_not_of(" \t\r") == std::string_view::npos) return {};
  const auto fail = [&](const auto&... what) {
    throw DataError(path_.string(), ": ", RecordReader::place(kind_, number), " ", what...);
  };
  if (is_json_) {
    auto json = nlohmann::json::parse(record, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) fail("is not a JSON object; correct or remove it");
    const auto found = json.find(column_);
    if (found == json.end()) fail("has no \"", printable(column_), "\"; choose the column with ", option_);
    if (!found->is_string())
      fail("has no text as \"", printable(column_), "\"; correct it or choose another one with ", option_);
    scratch = std::move(found->get_ref<std::string&>());
    return scratch;
  }
  if (!has_head()) return record;
  auto fields = csv_cells(record, delimiter_of(kind_));
  if (fields.size() != width_) {
    fail("has ", counted(static_cast<std::int64_t>(fields.size()), "column"), ", but the first row names ", width_,
         "; correct or remove it");
  }
  scratch = std::move(fields[index_]);
  return scratch;
}

}  // namespace sluice::text
