// plan_schedule: the schedule of a plan, and which device runs which stage.
#pragma once

#include <vector>

#include "core/plan.h"
#include "pipeline/schedule/action.h"

namespace sluice::pipeline {

// Validated, with a REDUCE_GRAD after the last B or W of each stage. Errors: ConfigError for an unknown name, or
// numbers of devices, virtual stages and chunks that the schedule (or schedule file) does not support.
[[nodiscard]] Schedule make_train_schedule(const Plan& plan, int chunks);

[[nodiscard]] int least_micro_batches(const Plan& plan);

[[nodiscard]] std::vector<int> stage_owners(const Plan& plan);

}  // namespace sluice::pipeline
