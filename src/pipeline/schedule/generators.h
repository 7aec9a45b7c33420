// generators: pure functions from the shape of a pipeline to a schedule, one stage per device.
// Not here: how long anything takes, and whether a schedule is sound (validate.h proves that, also for these).
// Errors: ConfigError for a shape without a stage or a micro-batch, and for an unknown name.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "pipeline/schedule/action.h"

namespace sluice::pipeline {

struct PipelineShape {
  int stages = 1;
  int micro_batches = 1;
};

// Every forward, then every backward in the same order. A stage keeps all micro-batches alive.
[[nodiscard]] Schedule make_gpipe(PipelineShape shape);

// Stage r warms up with p-1-r forwards, then alternates forward and backward. It keeps min(m, p-r) micro-batches alive.
[[nodiscard]] Schedule make_1f1b(PipelineShape shape);

// For evaluation: forwards only.
[[nodiscard]] Schedule make_forward_only(PipelineShape shape);

// The training schedule called `name` in the configuration (`pipeline.schedule`).
[[nodiscard]] Schedule make_schedule(std::string_view name, PipelineShape shape);
[[nodiscard]] std::span<const std::string> schedule_names();

}  // namespace sluice::pipeline
