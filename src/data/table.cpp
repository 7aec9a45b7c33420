#include "data/table.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "text/document_text.h"

namespace sluice::data {
namespace {

text::RecordKind kind_of(const std::filesystem::path& file) {
  const std::string ending = file.extension().string();
  if (ending == ".csv") return text::RecordKind::kCsvRow;
  return ending == ".tsv" ? text::RecordKind::kTsvRow : text::RecordKind::kLine;
}

bool is_blank(std::string_view row) { return row.find_first_not_of(" \t\r\n") == std::string_view::npos; }

}  // namespace

Table::Table(const std::filesystem::path& file, std::vector<std::string> columns)
    : path_(file), kind_(kind_of(file)), columns_(std::move(columns)), reader_(file, kind_) {
  if (kind_ != text::RecordKind::kLine) read_head();
}

void Table::reject(const Row& row, const std::string& what) const {
  throw DataError(path_.string(), ": ", text::RecordReader::place(kind_, row.number), " ", printable(what));
}

void Table::reject_column(const std::string& owner, const std::string& column,
                          const std::vector<std::string>& names) const {
  throw DataError(
      path_.string(), ": ", owner, " has no \"", printable(column), "\", but \"", printable(join(names, "\", \"")),
      "\"; correct data.text_column, data.pair_column or data.label_column", printable(did_you_mean(column, names)));
}

void Table::read_head() {
  std::string head;
  if (!reader_.next(head)) throw DataError(path_.string(), ": is empty; its first row must name the columns");
  const std::vector<std::string> names = text::csv_cells(head, delimiter_of(kind_));
  width_ = names.size();
  for (const std::string& column : columns_) {
    const auto found = std::ranges::find(names, column);
    if (found == names.end()) reject_column("its first row", column, names);
    places_.push_back(static_cast<std::size_t>(found - names.begin()));
  }
}

bool Table::next(std::vector<Row>& rows, std::uint64_t bytes) {
  std::uint64_t taken = 0;
  while (taken < bytes) {
    Row row{.number = reader_.records()};
    if (!reader_.next(row.bytes)) return taken > 0;
    if (is_blank(row.bytes)) continue;
    taken += row.bytes.size();
    rows.push_back(std::move(row));
  }
  return true;
}

double Table::share_read() const {
  return static_cast<double>(reader_.offset()) / static_cast<double>(std::max<std::uint64_t>(reader_.bytes(), 1));
}

std::vector<std::string> Table::cells(const Row& row) const {
  std::vector<std::string> wanted;
  if (kind_ == text::RecordKind::kLine) {
    each_value(row, [&](const nlohmann::json& value, const std::string& column) {
      wanted.push_back(text_of(row, value, column));
    });
    return wanted;
  }
  const std::vector<std::string> all = text::csv_cells(row.bytes, delimiter_of(kind_));
  if (all.size() != width_) {
    reject(row, concat("has ", counted(std::ssize(all), "column"), ", but the first row names ", width_, "; ",
                       kind_ == text::RecordKind::kTsvRow ? "remove tabs within cells" : "quote cells that hold commas",
                       ", or correct it"));
  }
  for (const std::size_t place : places_) wanted.push_back(all[place]);
  return wanted;
}

std::vector<std::vector<std::string>> Table::lists(const Row& row) const {
  std::vector<std::vector<std::string>> wanted;
  each_value(row, [&](const nlohmann::json& list, const std::string& column) {
    if (!list.is_array()) reject(row, concat("has no list as \"", column, "\"; correct it or choose another column"));
    std::vector<std::string>& texts = wanted.emplace_back();
    for (const nlohmann::json& value : list) texts.push_back(text_of(row, value, column));
  });
  return wanted;
}

void Table::each_value(const Row& row,
                       const std::function<void(const nlohmann::json&, const std::string&)>& take) const {
  const auto json = nlohmann::json::parse(row.bytes, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) reject(row, "is not a JSON object in UTF-8; correct or remove it");
  for (const std::string& column : columns_) {
    const auto found = json.find(column);
    if (found == json.end()) {
      std::vector<std::string> names;
      for (const auto& [name, value] : json.items()) names.push_back(name);
      reject_column(text::RecordReader::place(kind_, row.number), column, names);
    }
    take(*found, column);
  }
}

std::string Table::text_of(const Row& row, const nlohmann::json& value, const std::string& column) const {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number() || value.is_boolean()) return value.dump();
  reject(row, concat("has neither a text nor a number as \"", column, "\"; correct it or choose another column"));
}

}  // namespace sluice::data
