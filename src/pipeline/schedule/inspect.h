// inspect: plain facts about a schedule. Not here: time (the simulator's) and soundness (validate.h).
#pragma once

#include <vector>

#include "pipeline/schedule/action.h"

namespace sluice::pipeline {

[[nodiscard]] bool is_forward_only(const Schedule& schedule);

// The device that runs each stage. Requires: a validated schedule.
[[nodiscard]] std::vector<int> stage_owners(const Schedule& schedule);

// Per device, the most (stage, micro-batch) pairs whose activations live at once: from the start of a forward until its
// backward is done. Without backwards nothing is kept: 1 where there is any action.
[[nodiscard]] std::vector<int> peak_in_flight(const Schedule& schedule);

}  // namespace sluice::pipeline
