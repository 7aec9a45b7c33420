// plan_change: a change of a run's plan, as checkpoints hold it. Values.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/plan.h"
#include "freeze/policy.h"

namespace sluice::train {

// Predictions are in seconds per step.
struct FreezeRecord {
  std::int64_t epoch = 0;  // first epoch of the new plan, from 0
  int units = 0;           // frozen from this change on
  int units_before = 0;
  int of_units = 0;
  double predicted_before_s = 0;
  double predicted_s = 0;
  double staying_s = 0;                  // predicted with the shape that the run began with
  std::vector<freeze::Term> terms = {};  // inputs of the decision

  bool operator==(const FreezeRecord&) const = default;
};

struct PlanChange {
  std::int64_t after = 0;  // after this number of steps
  Plan plan;
  bool is_refused = false;  // the change failed and the run kept the previous plan
  std::optional<FreezeRecord> freeze = {};

  bool operator==(const PlanChange&) const = default;
};

}  // namespace sluice::train
