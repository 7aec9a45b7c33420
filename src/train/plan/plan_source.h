// plan_source: whoever decides, while a run trains, with which plan it goes on. A value.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include <nlohmann/json.hpp>

#include "core/plan.h"

namespace sluice::train {

// Asked once between two steps, and before the first one. Every process gets the same answers.
struct PlanSource {
  // The plan to go on with when so many steps are done; nothing: the one there is. Empty: it never changes.
  std::function<std::optional<Plan>(std::int64_t steps_done)> next = {};
  // The plan that next() gave there could not be taken on, and the one before stays. May be empty.
  std::function<void(std::int64_t steps_done)> refused = {};
  // Why that plan: fields of a `freeze` event; null where nothing freezes with it. May be empty.
  std::function<nlohmann::ordered_json(std::int64_t steps_done)> freeze_record = {};
};

}  // namespace sluice::train
