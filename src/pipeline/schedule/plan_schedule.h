// plan_schedule: the schedule of a plan, and which device runs which stage.
#pragma once

#include <vector>

#include "core/plan.h"
#include "pipeline/schedule/action.h"

namespace sluice::pipeline {

// Generates the schedule by its name or parses the plan's text. It is validated and has a REDUCE_GRAD after the last B
// or W of each stage (a schedule file may have its own). Errors: ConfigError for an unknown name, or numbers of
// devices, virtual stages and chunks that the schedule does not support; a schedule file supports one of each.
[[nodiscard]] Schedule make_train_schedule(const Plan& plan, int chunks);

[[nodiscard]] int least_micro_batches(const Plan& plan);

// [stage]: the device of its replica that runs it. Does not depend on the number of chunks.
[[nodiscard]] std::vector<int> stage_owners(const Plan& plan);

}  // namespace sluice::pipeline
