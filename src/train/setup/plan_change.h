// plan_change: a change of the plan of a run, as its checkpoints hold it. Values.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/plan.h"
#include "freeze/policy.h"

namespace sluice::train {

// What freezes with a change, and why its plan was chosen. Predictions are of a step, in seconds.
struct FreezeRecord {
  std::int64_t epoch = 0;  // that begins, from 0
  int units = 0;           // frozen from here on,
  int units_before = 0;
  int of_units = 0;  // that the model has
  double predicted_before_s = 0;
  double predicted_s = 0;
  double staying_s = 0;                  // in the shape that the run began with
  std::vector<freeze::Term> terms = {};  // that it was decided from

  bool operator==(const FreezeRecord&) const = default;
};

struct PlanChange {
  std::int64_t after = 0;  // steps done
  Plan plan;
  bool is_refused = false;  // it could not be taken on, and the plan before stayed
  std::optional<FreezeRecord> freeze = {};

  bool operator==(const PlanChange&) const = default;
};

}  // namespace sluice::train
