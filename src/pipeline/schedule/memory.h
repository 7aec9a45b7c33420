// memory: the most bytes that a schedule makes each device hold.
// Not here: what a stage's bytes are; they are measured (core/layer_cost.h) or computed by the caller.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pipeline/schedule/action.h"

namespace sluice::pipeline {

// Bytes of one micro-batch that a neighbouring stage reads where they lie, instead of having a copy. They count until
// that neighbour has finished with them.
struct Lent {
  std::int64_t until_gradient = 0;  // what it needs until its B or I is over
  std::int64_t until_last = 0;      // what it needs until its B or W is over

  [[nodiscard]] std::int64_t total() const { return until_gradient + until_last; }
};

// Of one stage, in bytes.
struct StageBytes {
  std::int64_t fixed = 0;       // for the whole step: weights, gradients, optimizer state, buffers of its edges
  std::int64_t activation = 0;  // per micro-batch, from F until B or I is over
  std::int64_t stash = 0;       // per micro-batch, from I until W is over: what the weight gradient still needs
  Lent lent_output;             // the output, from F on; to the next stage
  Lent lent_gradient;           // the gradient of the input, from the end of B or I on; to the stage before
  // What an action takes at its worst moment besides what is held when it begins; of F and I the activation and the
  // stash are part of it.
  std::int64_t forward_working = 0;
  std::int64_t backward_working = 0;
  std::int64_t input_working = 0;
  std::int64_t weight_working = 0;
};

// Per device, the most at any time: MemoryTrace::peak_bytes() (memory_trace.h). Requires: a validated schedule; one
// entry per stage.
[[nodiscard]] std::vector<std::int64_t> peak_bytes(const Schedule& schedule, std::span<const StageBytes> stages);

// Throws ConfigError naming the first device that needs more than its budget. budgets: [device], in bytes.
void require_bytes(const Schedule& schedule, std::span<const StageBytes> stages, std::span<const std::int64_t> budgets);

// Bytes of stages from those of devices: `devices[d]` is of all stages of device d together, in equal shares; what is
// left of a division goes to its first stage. Nothing is lent. Requires: a validated schedule; one entry per device.
[[nodiscard]] std::vector<StageBytes> share_bytes(const Schedule& schedule, std::span<const StageBytes> devices);

}  // namespace sluice::pipeline
