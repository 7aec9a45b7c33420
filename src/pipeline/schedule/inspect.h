// inspect: plain facts about a schedule.
#pragma once

#include <vector>

#include "pipeline/schedule/action.h"

namespace sluice::pipeline {

[[nodiscard]] bool is_forward_only(const Schedule& schedule);

[[nodiscard]] bool splits_backward(const Schedule& schedule);

// [stage]: the device that runs it; -1: no device does. Requires: stages in range, one owner per stage.
[[nodiscard]] std::vector<int> stage_owners(const Schedule& schedule);

// The number of stages that each device owns, and the largest of these. Requires: as stage_owners().
[[nodiscard]] std::vector<int> stages_per_device(const Schedule& schedule);
[[nodiscard]] int most_stages_per_device(const Schedule& schedule);

// [device]: the most (stage, micro-batch) pairs from the start of a forward to the end of its B or W, at once. Without
// backwards no activations are kept: 1 for a device with actions.
[[nodiscard]] std::vector<int> peak_in_flight(const Schedule& schedule);

// [device]: the most (stage, micro-batch) pairs between I and W, whose weight gradients are stashed.
[[nodiscard]] std::vector<int> peak_stash(const Schedule& schedule);

}  // namespace sluice::pipeline
