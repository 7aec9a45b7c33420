#include "report/html/process_times.h"

#include "core/concat.h"
#include "core/text.h"
#include "report/html/history.h"

namespace sluice::report {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostRows = 256;

Json stacked_row(const std::string& name, const Json& slot) {
  const auto parts = parts_of(slot);
  if (parts.empty()) return nullptr;
  Json row{{"name", name}, {"steps", integer_at(slot, "steps").value_or(0)}, {"parts", Json::object()}};
  double sum = 0;
  for (const auto& [part, ms] : parts) {
    row["parts"][part] = brief(ms);
    sum += ms;
  }
  row["step_ms"] = number_at(slot, "step_ms").value_or(sum);
  return row;
}

std::string slot_name(const Json& slot, std::int64_t of_steps) {
  const std::int64_t steps = integer_at(slot, "steps").value_or(0);
  return concat("replica ", integer_at(slot, "replica").value_or(0), ", stage ", integer_at(slot, "stage").value_or(0),
                steps > 0 && steps < of_steps ? concat(" (", counted(steps, "step"), ")") : "");
}

void add_rows(Json& times, const Json& slots, const std::string& before) {
  if (!slots.is_array()) return;
  std::int64_t steps = 0;
  for (const Json& slot : slots) steps = std::max(steps, integer_at(slot, "steps").value_or(0));
  for (const Json& slot : slots) {
    Json row = stacked_row(before + slot_name(slot, steps), slot);
    if (row.is_null()) continue;
    if (times["rows"].size() < kMostRows) {
      times["rows"].push_back(std::move(row));
    } else {
      times["left_out"] = times["left_out"].get<std::int64_t>() + 1;
    }
  }
}

}  // namespace

Json process_times(const RunLog& log) {
  Json times{{"of", "mean"}, {"rows", Json::array()}, {"left_out", 0}};
  if (log.ranks.is_array()) {
    for (const Json& rank : log.ranks) {
      if (!rank.is_object()) continue;
      add_rows(times, rank.value("places", Json(nullptr)), concat("rank ", integer_at(rank, "rank").value_or(0), ", "));
    }
    times["of"] = "all processes";
  }
  if (times["rows"].empty()) {
    add_rows(times, log.summary.value("breakdown", Json(nullptr)), "");
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
