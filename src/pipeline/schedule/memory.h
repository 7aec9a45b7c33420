// memory: the bytes that a schedule makes each device hold.
// Not here: what a stage's bytes are; they are measured (core/layer_cost.h) or computed by the caller.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pipeline/schedule/action.h"

namespace sluice::pipeline {

// Of one stage, in bytes.
struct StageBytes {
  std::int64_t fixed = 0;       // for the whole step: weights, gradients, optimizer state, buffers of its edges
  std::int64_t activation = 0;  // per micro-batch, from F until B or I is over
  std::int64_t stash = 0;       // per micro-batch, from I until W is over: what the weight gradient still needs
};

// Per device, the most bytes at any time: the sum over its stages. While I runs, the larger of activation and stash is
// held, for one becomes the other. An evaluation keeps one activation.
// Requires: a validated schedule; one entry per stage.
[[nodiscard]] std::vector<std::int64_t> peak_bytes(const Schedule& schedule, std::span<const StageBytes> stages);

// Throws ConfigError naming the first device that needs more than its budget. budgets: [device], in bytes.
void require_bytes(const Schedule& schedule, std::span<const StageBytes> stages, std::span<const std::int64_t> budgets);

// Bytes of stages from those of devices: `devices[d]` is of all stages of device d together, in equal shares; what is
// left of a division goes to its first stage. Requires: a validated schedule; one entry per device.
[[nodiscard]] std::vector<StageBytes> share_bytes(const Schedule& schedule, std::span<const StageBytes> devices);

}  // namespace sluice::pipeline
