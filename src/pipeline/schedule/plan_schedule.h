// plan_schedule: the schedule of a plan, and which device runs which stage under it.
// Not here: the generators (pipeline/schedule/generators.h).
#pragma once

#include <vector>

#include "core/plan.h"
#include "pipeline/schedule/action.h"

namespace sluice::pipeline {

// Validated; with a REDUCE_GRAD after the last B or W of each stage. Errors: ConfigError for an unknown name, and for
// numbers of devices, virtual stages and chunks that the schedule does not have.
[[nodiscard]] Schedule make_train_schedule(const Plan& plan, int chunks);

// [stage]: the device of its replica that runs it. It depends on no number of chunks.
[[nodiscard]] std::vector<int> stage_owners(const Plan& plan);

}  // namespace sluice::pipeline
