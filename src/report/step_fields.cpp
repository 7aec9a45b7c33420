#include "report/step_fields.h"

namespace sluice::report {

using nlohmann::ordered_json;
using profiler::Part;
using profiler::PlaceBreakdown;

std::vector<std::pair<std::string, double>> times_of(const PlaceBreakdown& place) {
  return {{"load_ms", to_ms(place.load())},
          {"forward_ms", to_ms(place.forward())},
          {"backward_ms", to_ms(place.backward())},
          {"transfer_ms", to_ms(place.transfer())},
          {"allreduce_exposed_ms", to_ms(place.all_reduce_exposed())},
          {"optimizer_ms", to_ms(place.optimizer())},
          {"idle_ms", to_ms(place.idle())},
          {"skew_ms", to_ms(place[Part::kSkew])},
          {"bubble_fill_ms", to_ms(place[Part::kFill])},
          {"bubble_steady_ms", to_ms(place[Part::kSteady])},
          {"bubble_drain_ms", to_ms(place[Part::kDrain])},
          {"allreduce_ms", to_ms(place.all_reduce)},
          {"allreduce_hidden_ms", to_ms(place.all_reduce_hidden())}};
}

void add_breakdown(ordered_json& fields, const profiler::StepBreakdown& breakdown) {
  const bool is_known = !breakdown.places.empty();
  const auto known = [&](const ordered_json& value) { return is_known ? value : ordered_json(nullptr); };
  for (const auto& [name, ms] : times_of(breakdown.mean())) fields[name] = known(ms);
  fields["slowest_stage"] = known(index(breakdown.slowest_device()));
  fields["device_busy"] = known(breakdown.device_busy());
  if (breakdown.dropped > 0) fields["spans_dropped"] = breakdown.dropped;
}

void add_flops(ordered_json& fields, const FlopCount& flops, Nanoseconds duration, const RunFacts& facts) {
  const double all = per_second(all_flops(flops), duration);
  fields["flops_per_s"] = all;
  for (int kind = 0; kind < kProductKinds; ++kind) {
    if (flops[kind] > 0)
      fields["flops_per_s_by_kind"][name_of(static_cast<ProductKind>(kind))] = per_second(flops[kind], duration);
  }
  const auto utilisation = facts.utilisation(all);
  fields["mfu"] = utilisation ? ordered_json(*utilisation) : ordered_json(nullptr);
}

ordered_json mean_breakdown(const RunTotals& totals) {
  if (totals.places.empty()) return nullptr;
  ordered_json list = ordered_json::array();
  for (const PlaceTimes& place : mean_times(totals)) {
    list.push_back({{"replica", place.replica}, {"stage", place.device}});
    for (const auto& [name, ms] : place.ms) list.back()[name] = ms;
  }
  return list;
}

}  // namespace sluice::report
