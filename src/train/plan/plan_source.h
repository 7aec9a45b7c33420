// plan_source: gives the plan for the next steps while a run trains. A value.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include <nlohmann/json.hpp>

#include "core/plan.h"

namespace sluice::train {

// Called once between two steps and before the first one. All processes get the same answers.
struct PlanSource {
  // The next plan after `steps_done` steps; nullopt: keep the current one. Empty: the plan never changes.
  std::function<std::optional<Plan>(std::int64_t steps_done)> next = {};
  // Called if the engine refused that plan and keeps the previous one. May be empty.
  std::function<void(std::int64_t steps_done)> refused = {};
  // Fields of the `freeze` event for that plan; null if it freezes nothing. May be empty.
  std::function<nlohmann::ordered_json(std::int64_t steps_done)> freeze_record = {};
};

}  // namespace sluice::train
