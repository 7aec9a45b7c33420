#include "report/call_table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <vector>

#include "core/concat.h"
#include "core/text.h"
#include "core/text_table.h"
#include "report/record_fields.h"

namespace sluice::report {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostCalls = 30;  // in JSON and on a page
constexpr std::size_t kMostTextRows = 12;
constexpr std::size_t kMostNameLetters = 60;  // of a call, in text

struct Fields {
  const char* name;
  const char* part;
  const char* time;
};
constexpr Fields kKernelFields{.name = "kernel", .part = "phase", .time = "time_ms"};
constexpr Fields kOperatorFields{.name = "operator", .part = "pass", .time = "self_ms"};

bool is_amount(std::optional<double> number) { return number && std::isfinite(*number) && *number >= 0; }

Json call_row(const Json& row, const Fields& fields) {
  const auto name = text_at(row, fields.name), part = text_at(row, fields.part), layer = text_at(row, "layer");
  const auto calls = number_at(row, "calls"), ms = number_at(row, fields.time);
  if (!name || !part || !is_amount(ms) || !is_amount(calls)) return nullptr;
  return {{fields.part, *part},
          {"layer", layer ? Json(*layer) : Json(nullptr)},
          {fields.name, *name},
          {"calls", *calls},
          {fields.time, *ms}};
}

// more: copies further fields from the event's row (first argument) to the table's row.
Json call_table(const Json& line, const Fields& fields, const char* sum_name,
                const std::function<void(const Json&, Json&)>& more) {
  const auto steps = static_cast<double>(count_at(line, "steps", 1'000'000'000).value_or(0));
  const Json list = line.is_object() ? line.value("rows", Json()) : Json();
  if (!list.is_array() || steps == 0) return nullptr;
  const auto rest = number_at(line, "rest_ms");
  double all = is_amount(rest) ? *rest : 0, shown = 0;
  Json rows = Json::array();
  for (const Json& recorded : list) {  // sorted by time, longest first
    Json row = call_row(recorded, fields);
    if (row.is_null()) continue;
    const double ms = row.at(fields.time).get<double>();
    all += ms;
    if (rows.size() == kMostCalls) continue;
    shown += ms;
    for (const char* sum : {"calls", fields.time}) row[sum] = row.at(sum).get<double>() / steps;
    row["share"] = ms;
    more(recorded, row);
    rows.push_back(std::move(row));
  }
  if (rows.empty() || all <= 0) return nullptr;
  for (Json& row : rows) row["share"] = row.at("share").get<double>() / all;
  return {{"steps", line.at("steps")},
          {sum_name, all / steps},
          {"rows", std::move(rows)},
          {"left_out_ms", std::max(all - shown, 0.0) / steps}};
}

std::string name_in(const Json& row, const char* field) {
  return row.at(field).get<std::string>().substr(0, kMostNameLetters);
}

std::string call_text(const Json& table, const Fields& fields, const std::string& title, TextRow heading,
                      const std::vector<Align>& columns, const std::function<TextRow(const Json&)>& cells) {
  if (!table.is_object()) return "";
  std::vector<TextRow> rows{std::move(heading)};
  for (const Json& row : table.at("rows")) {
    if (rows.size() > kMostTextRows) break;
    TextRow text{fixed(100 * row.at("share").get<double>(), 1), fixed(row.at(fields.time).get<double>(), 3),
                 fixed(row.at("calls").get<double>(), 1)};
    for (std::string& cell : cells(row)) text.push_back(std::move(cell));
    rows.push_back(std::move(text));
  }
  return concat(title, " ms a step (mean of ", counted(table.at("steps").get<std::int64_t>(), "step"), "):\n",
                text_table(rows, columns));
}

}  // namespace

Json kernel_table(const Json& line) {
  return call_table(line, kKernelFields, "kernel_ms", [](const Json&, Json&) {});
}

Json run_operators(const Json& line) {
  return call_table(line, kOperatorFields, "operator_ms", [](const Json& recorded, Json& row) {
    const double self_s = number_at(recorded, "self_ms").value_or(0) * 1e-3;
    for (const auto& [amount, rate] : {std::pair("flops", "flops_per_s"), std::pair("bytes", "bytes_per_s")}) {
      const auto number = number_at(recorded, amount);
      row[rate] = is_amount(number) && *number > 0 && self_s > 0 ? Json(*number / self_s) : Json(nullptr);
    }
  });
}

std::string kernel_table_text(const Json& table) {
  if (!table.is_object()) return "";
  const std::vector columns{Align::kRight, Align::kRight, Align::kRight, Align::kLeft};
  return call_text(table, kKernelFields, concat("kernels of the GPUs, ", fixed(table.at("kernel_ms").get<double>(), 2)),
                   {"share %", "ms a step", "calls", "phase", "layer", "kernel"}, columns, [](const Json& row) {
                     return TextRow{name_in(row, "phase"), text_at(row, "layer").value_or("-"), name_in(row, "kernel")};
                   });
}

std::string run_operators_text(const Json& table) {
  if (!table.is_object()) return "";
  const std::vector columns{Align::kRight, Align::kRight, Align::kRight, Align::kRight, Align::kRight, Align::kLeft};
  const auto billions = [](const Json& row, const char* rate) {
    const auto number = number_at(row, rate);
    return number ? fixed(*number * 1e-9, *number < 1e10 ? 2 : 1) : std::string("-");
  };
  return call_text(table, kOperatorFields, concat("operators, ", fixed(table.at("operator_ms").get<double>(), 2)),
                   {"share %", "self ms a step", "calls", "GFLOP/s", "GB/s", "pass", "layer", "operator"}, columns,
                   [&](const Json& row) {
                     return TextRow{billions(row, "flops_per_s"), billions(row, "bytes_per_s"), name_in(row, "pass"),
                                    text_at(row, "layer").value_or("-"), name_in(row, "operator")};
                   });
}

}  // namespace sluice::report
