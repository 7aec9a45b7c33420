// inspect: plain facts about a schedule. Not here: time (simulate.h), bytes (memory.h) and soundness (validate.h).
#pragma once

#include <vector>

#include "pipeline/schedule/action.h"

namespace sluice::pipeline {

[[nodiscard]] bool is_forward_only(const Schedule& schedule);

// Whether any backward is cut into I and W.
[[nodiscard]] bool splits_backward(const Schedule& schedule);

// The device that runs each stage; -1 where none does. Requires: stages in range, one owner a stage.
[[nodiscard]] std::vector<int> stage_owners(const Schedule& schedule);

// The number of stages that each device owns, and the largest of these. Requires: the same.
[[nodiscard]] std::vector<int> stages_per_device(const Schedule& schedule);
[[nodiscard]] int most_stages_per_device(const Schedule& schedule);

// Per device, the most (stage, micro-batch) pairs in flight at once, which is whose activations it has to keep: from
// the start of a forward until its B or W is done. Without backwards nothing is kept: 1 where there is any action.
[[nodiscard]] std::vector<int> peak_in_flight(const Schedule& schedule);

// Per device, the most (stage, micro-batch) pairs between I and W: those whose weight gradient is stashed.
[[nodiscard]] std::vector<int> peak_stash(const Schedule& schedule);

}  // namespace sluice::pipeline
