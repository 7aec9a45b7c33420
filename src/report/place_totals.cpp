#include "report/place_totals.h"

#include <algorithm>
#include <utility>

#include "report/step_fields.h"

namespace sluice::report {

using profiler::PlaceBreakdown;

void add_step(PlaceTotals& totals, const profiler::StepBreakdown& breakdown) {
  for (const PlaceBreakdown& of_step : breakdown.places) {
    const auto is_same = [&](const PlaceTotal& place) {
      return place.sum.replica == of_step.replica && place.sum.device == of_step.device;
    };
    auto place = std::ranges::find_if(totals, is_same);
    if (place == totals.end()) {
      const auto comes_before = [&](const PlaceTotal& other) {
        return std::pair(other.sum.replica, other.sum.device) < std::pair(of_step.replica, of_step.device);
      };
      place = totals.insert(std::ranges::partition_point(totals, comes_before), PlaceTotal{});
      place->sum.replica = of_step.replica;
      place->sum.device = of_step.device;
    }
    profiler::add(place->sum, of_step);
    ++place->steps;
    place->duration += breakdown.step;
  }
}

std::vector<PlaceTimes> mean_times(const PlaceTotals& totals) {
  std::vector<PlaceTimes> places;
  for (const auto& [sum, steps, duration] : totals) {
    PlaceTimes& place = places.emplace_back(PlaceTimes{index(sum.replica), index(sum.device), {}, steps});
    for (const auto& [name, total_ms] : times_of(sum)) place.ms[name] = total_ms / static_cast<double>(steps);
    place.ms["step_ms"] = to_ms(duration) / static_cast<double>(steps);
  }
  return places;
}

nlohmann::ordered_json mean_breakdown(const PlaceTotals& totals) {
  if (totals.empty()) return nullptr;
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const PlaceTimes& place : mean_times(totals)) {
    list.push_back({{"replica", place.replica}, {"stage", place.device}, {"steps", place.steps}});
    for (const auto& [name, ms] : place.ms) list.back()[name] = ms;
  }
  return list;
}

}  // namespace sluice::report
