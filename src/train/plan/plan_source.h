// plan_source: gives the plan for the next steps while a run trains. A value.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include <nlohmann/json.hpp>

#include "core/plan.h"

namespace sluice::train {

struct PlanSource {
  // The next plan after `steps_done` steps; nullopt: keep the current one. Empty: the plan never changes.
  std::function<std::optional<Plan>(std::int64_t steps_done)> next = {};
  std::function<void(std::int64_t steps_done)> refused = {};
  // Fields of the `freeze` event for that plan; null if it freezes nothing. May be empty.
  std::function<nlohmann::ordered_json(std::int64_t steps_done)> freeze_record = {};
};

}  // namespace sluice::train
