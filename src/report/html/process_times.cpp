#include "report/html/process_times.h"

#include "core/concat.h"
#include "report/html/history.h"

namespace sluice::report {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostRows = 256;

Json stacked_row(const std::string& name, const Json& place) {
  const auto parts = parts_of(place);
  if (parts.empty()) return nullptr;
  Json row{{"name", name}, {"steps", integer_at(place, "steps").value_or(0)}, {"parts", Json::object()}};
  double sum = 0;
  for (const auto& [part, ms] : parts) {
    row["parts"][part] = brief(ms);
    sum += ms;
  }
  row["step_ms"] = number_at(place, "step_ms").value_or(sum);
  return row;
}

std::string place_name(const Json& place) {
  return concat("replica ", integer_at(place, "replica").value_or(0), ", stage ",
                integer_at(place, "stage").value_or(0));
}

void add_rows(Json& rows, const Json& places, const std::string& before) {
  if (!places.is_array()) return;
  for (const Json& place : places) {
    Json row = stacked_row(before + place_name(place), place);
    if (!row.is_null() && rows.size() < kMostRows) rows.push_back(std::move(row));
  }
}

}  // namespace

Json process_times(const RunLog& log) {
  Json times{{"of", "mean"}, {"rows", Json::array()}};
  if (log.ranks.is_array()) {
    for (const Json& rank : log.ranks) {
      if (!rank.is_object()) continue;
      add_rows(times["rows"], rank.value("places", Json(nullptr)),
               concat("rank ", integer_at(rank, "rank").value_or(0), ", "));
    }
    times["of"] = "all processes";
  }
  if (times["rows"].empty()) {
    add_rows(times["rows"], log.summary.value("breakdown", Json(nullptr)), "");
    times["of"] = "rank 0";
  }
  if (times["rows"].empty()) {
    Json row = stacked_row("all stages", Json(log.means));
    if (!row.is_null()) times["rows"].push_back(std::move(row));
    times["of"] = "mean";
  }
  return times["rows"].empty() ? Json(nullptr) : times;
}

}  // namespace sluice::report
