#include "report/slot_totals.h"

#include <algorithm>
#include <utility>

#include "report/step_fields.h"

namespace sluice::report {

using profiler::SlotBreakdown;

void add_step(SlotTotals& totals, const profiler::StepBreakdown& breakdown) {
  for (const SlotBreakdown& of_step : breakdown.slots) {
    const auto is_same = [&](const SlotTotal& slot) {
      return slot.sum.replica == of_step.replica && slot.sum.device == of_step.device;
    };
    auto slot = std::ranges::find_if(totals, is_same);
    if (slot == totals.end()) {
      const auto comes_before = [&](const SlotTotal& other) {
        return std::pair(other.sum.replica, other.sum.device) < std::pair(of_step.replica, of_step.device);
      };
      slot = totals.insert(std::ranges::partition_point(totals, comes_before), SlotTotal{});
      slot->sum.replica = of_step.replica;
      slot->sum.device = of_step.device;
    }
    profiler::add(slot->sum, of_step);
    ++slot->steps;
    slot->duration += breakdown.step;
  }
}

std::vector<SlotTimes> mean_times(const SlotTotals& totals) {
  std::vector<SlotTimes> slots;
  for (const auto& [sum, steps, duration] : totals) {
    SlotTimes& slot = slots.emplace_back(SlotTimes{index(sum.replica), index(sum.device), {}, steps});
    for (const auto& [name, total_ms] : times_of(sum)) slot.ms[name] = total_ms / static_cast<double>(steps);
    slot.ms["step_ms"] = to_ms(duration) / static_cast<double>(steps);
  }
  return slots;
}

nlohmann::ordered_json mean_breakdown(const SlotTotals& totals) {
  if (totals.empty()) return nullptr;
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const SlotTimes& slot : mean_times(totals)) {
    list.push_back({{"replica", slot.replica}, {"stage", slot.device}, {"steps", slot.steps}});
    for (const auto& [name, ms] : slot.ms) list.back()[name] = ms;
  }
  return list;
}

}  // namespace sluice::report
