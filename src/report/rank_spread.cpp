#include "report/rank_spread.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>

#include "core/concat.h"
#include "core/text.h"
#include "core/text_table.h"
#include "report/record_fields.h"

namespace sluice::report {
namespace {

using Json = nlohmann::ordered_json;

struct Work {
  double ms = 0;
  std::int64_t rank = 0;
  std::string host;
};

std::optional<double> work_ms(const Json& slot) {
  double sum = 0;
  for (const char* part : {"load_ms", "forward_ms", "backward_ms", "optimizer_ms"}) {
    const auto ms = number_at(slot, part);
    if (!ms || !std::isfinite(*ms)) return std::nullopt;
    sum += *ms;
  }
  return sum;
}

struct Mean {
  double sum = 0, steps = 0;
};

// Means per stage over a process's replicas, weighted by their steps; plans may differ in their slots.
std::map<std::int64_t, Mean> means_of(const Json& slots) {
  std::map<std::int64_t, Mean> means;
  for (const Json& slot : slots) {
    const auto stage = integer_at(slot, "stage");
    const auto ms = work_ms(slot);
    if (!stage || !ms) continue;
    const auto steps = static_cast<double>(std::max<std::int64_t>(integer_at(slot, "steps").value_or(1), 1));
    means[*stage].sum += *ms * steps;
    means[*stage].steps += steps;
  }
  return means;
}

std::map<std::int64_t, std::vector<Work>> work_by_stage(const Json& ranks) {
  std::map<std::int64_t, std::vector<Work>> stages;
  for (const Json& rank : ranks) {
    const auto number = integer_at(rank, "rank");
    const auto slots = rank.is_object() ? rank.find("places") : rank.end();
    if (!number || slots == rank.end() || !slots->is_array()) continue;
    for (const auto& [stage, mean] : means_of(*slots))
      stages[stage].push_back({mean.sum / mean.steps, *number, text_at(rank, "host").value_or("")});
  }
  return stages;
}

}  // namespace

Json rank_spread(const Json& ranks) {
  if (!ranks.is_array()) return nullptr;
  Json rows = Json::array();
  for (const auto& [stage, works] : work_by_stage(ranks)) {
    if (works.size() < 2) continue;
    const auto [least, most] = std::ranges::minmax_element(works, {}, &Work::ms);
    double sum = 0;
    for (const Work& work : works) sum += work.ms;
    rows.push_back({{"stage", stage},
                    {"processes", works.size()},
                    {"mean_ms", sum / static_cast<double>(works.size())},
                    {"slowest_ms", most->ms},
                    {"slowest_rank", most->rank},
                    {"slowest_host", most->host},
                    {"spread_ms", most->ms - least->ms}});
  }
  return rows.empty() ? Json(nullptr) : rows;
}

std::string rank_spread_text(const Json& spread) {
  if (!spread.is_array()) return "";
  std::vector<TextRow> rows{{"over the processes, ms a step", "mean", "slowest", "spread", "slowest rank"}};
  const auto ms = [](const Json& row, const char* name) { return fixed(row.at(name).get<double>(), 2); };
  for (const Json& row : spread)
    rows.push_back(
        {concat("stage ", row.at("stage").get<std::int64_t>()), ms(row, "mean_ms"), ms(row, "slowest_ms"),
         ms(row, "spread_ms"),
         concat(row.at("slowest_rank").get<std::int64_t>(), " ", row.at("slowest_host").get<std::string>())});
  return concat(text_table(rows, std::array{Align::kLeft, Align::kRight}),
                "\n(load, forward, backward and optimizer; the rest of a step is waiting or moving tensors)");
}

}  // namespace sluice::report
