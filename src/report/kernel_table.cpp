#include "report/kernel_table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "core/concat.h"
#include "core/text.h"
#include "core/text_table.h"
#include "report/record_fields.h"

namespace sluice::report {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostKernels = 30;  // in JSON and on a page
constexpr std::size_t kMostTextRows = 12;
constexpr std::size_t kMostNameLetters = 60;  // of a kernel, in text

bool is_time(std::optional<double> ms) { return ms && std::isfinite(*ms) && *ms >= 0; }

// Of all steps together; null for what is none.
Json kernel_row(const Json& row) {
  const auto kernel = text_at(row, "kernel"), phase = text_at(row, "phase"), layer = text_at(row, "layer");
  const auto calls = number_at(row, "calls"), ms = number_at(row, "time_ms");
  if (!kernel || !phase || !is_time(ms) || !is_time(calls)) return nullptr;
  return {{"phase", *phase},
          {"layer", layer ? Json(*layer) : Json(nullptr)},
          {"kernel", *kernel},
          {"calls", *calls},
          {"time_ms", *ms}};
}

}  // namespace

Json kernel_table(const Json& line) {
  const auto steps = static_cast<double>(count_at(line, "steps", 1'000'000'000).value_or(0));
  const Json list = line.is_object() ? line.value("rows", Json()) : Json();
  if (!list.is_array() || steps == 0) return nullptr;
  const auto rest = number_at(line, "rest_ms");
  double all = is_time(rest) ? *rest : 0, shown = 0;
  Json rows = Json::array();
  for (const Json& told : list) {  // the longest come first
    Json row = kernel_row(told);
    if (row.is_null()) continue;
    all += row.at("time_ms").get<double>();
    if (rows.size() == kMostKernels) continue;
    shown += row.at("time_ms").get<double>();
    rows.push_back(std::move(row));
  }
  if (rows.empty() || all <= 0) return nullptr;
  for (Json& row : rows) {
    row["share"] = row.at("time_ms").get<double>() / all;
    for (const char* sum : {"calls", "time_ms"}) row[sum] = row.at(sum).get<double>() / steps;
  }
  return {{"steps", line.at("steps")},
          {"kernel_ms", all / steps},
          {"rows", std::move(rows)},
          {"left_out_ms", std::max(all - shown, 0.0) / steps}};
}

std::string kernel_table_text(const Json& table) {
  if (!table.is_object()) return "";
  std::vector<TextRow> rows{{"share %", "ms a step", "calls", "phase", "layer", "kernel"}};
  for (const Json& row : table.at("rows")) {
    if (rows.size() > kMostTextRows) break;
    rows.push_back({fixed(100 * row.at("share").get<double>(), 1), fixed(row.at("time_ms").get<double>(), 3),
                    fixed(row.at("calls").get<double>(), 1), row.at("phase").get<std::string>(),
                    text_at(row, "layer").value_or("-"),
                    row.at("kernel").get<std::string>().substr(0, kMostNameLetters)});
  }
  return concat("kernels of the GPUs, ", fixed(table.at("kernel_ms").get<double>(), 2), " ms a step (mean of ",
                counted(table.at("steps").get<std::int64_t>(), "step"), "):\n",
                text_table(rows, std::array{Align::kRight, Align::kRight, Align::kRight, Align::kLeft}));
}

}  // namespace sluice::report
