#include "train/step_fields.h"

namespace sluice::train {

using nlohmann::ordered_json;
using profiler::Part;
using profiler::StageBreakdown;

ordered_json time_fields(const StageBreakdown& stage) {
  return {{"load_ms", to_ms(stage.load())},
          {"forward_ms", to_ms(stage.forward())},
          {"backward_ms", to_ms(stage.backward())},
          {"transfer_ms", to_ms(stage.transfer())},
          {"allreduce_exposed_ms", to_ms(stage.all_reduce_exposed())},
          {"optimizer_ms", to_ms(stage.optimizer())},
          {"idle_ms", to_ms(stage.idle())},
          {"skew_ms", to_ms(stage[Part::kSkew])},
          {"bubble_fill_ms", to_ms(stage[Part::kFill])},
          {"bubble_steady_ms", to_ms(stage[Part::kSteady])},
          {"bubble_drain_ms", to_ms(stage[Part::kDrain])},
          {"allreduce_ms", to_ms(stage.all_reduce)}};
}

void add_breakdown(ordered_json& fields, const profiler::StepBreakdown& breakdown) {
  const bool is_known = !breakdown.stages.empty();
  const ordered_json times = time_fields(breakdown.mean());
  for (const auto& [name, value] : times.items()) fields[name] = is_known ? value : ordered_json(nullptr);
  fields["slowest_stage"] = is_known ? ordered_json(index(breakdown.slowest_stage())) : ordered_json(nullptr);
  fields["device_busy"] = is_known ? ordered_json(breakdown.device_busy()) : ordered_json(nullptr);
}

ordered_json mean_breakdown(const RunTotals& totals) {
  if (totals.stages.empty() || totals.steps == 0) return nullptr;
  ordered_json places = ordered_json::array();
  for (const StageBreakdown& stage : totals.stages) {
    ordered_json& place =
        places.emplace_back(ordered_json{{"replica", index(stage.replica)}, {"stage", index(stage.stage)}});
    const ordered_json sums = time_fields(stage);
    for (const auto& [name, sum] : sums.items()) place[name] = sum.get<double>() / static_cast<double>(totals.steps);
    place["step_ms"] = totals.mean_ms(totals.duration);
  }
  return places;
}

}  // namespace sluice::train
