// plan_schedule: the schedule of a plan, and which device runs which stage under it.
// Not here: the generators (pipeline/schedule/generators.h), and orders that somebody wrote
// (pipeline/schedule/schedule_file.h).
#pragma once

#include <vector>

#include "core/plan.h"
#include "pipeline/schedule/action.h"

namespace sluice::pipeline {

// Made by its name, or from the plan's text. Validated; with a REDUCE_GRAD after the last B or W of each stage (an
// order may have its own). Errors: ConfigError for an unknown name, and for numbers of devices, virtual stages and
// chunks that the schedule does not have; a schedule file has one of each.
[[nodiscard]] Schedule make_train_schedule(const Plan& plan, int chunks);

// The least number of chunks that its schedule has.
[[nodiscard]] int least_micro_batches(const Plan& plan);

// [stage]: the device of its replica that runs it. It depends on no number of chunks.
[[nodiscard]] std::vector<int> stage_owners(const Plan& plan);

}  // namespace sluice::pipeline
