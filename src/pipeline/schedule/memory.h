// memory: the most bytes that a schedule makes each device hold, from the bytes of its stages.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pipeline/schedule/action.h"

namespace sluice::pipeline {

// Bytes of a micro-batch that a neighbouring stage reads in place; they count until it has finished with them.
struct Lent {
  std::int64_t until_gradient = 0;  // needed until its B or I is over
  std::int64_t until_last = 0;      // needed until its B or W is over

  [[nodiscard]] std::int64_t total() const { return until_gradient + until_last; }
};

struct StageBytes {
  // For the whole step: weights, gradients, optimizer state, buffers of its edges.
  std::int64_t fixed = 0;
  std::int64_t activation = 0;  // per micro-batch, from F until B or I is over
  std::int64_t stash = 0;       // per micro-batch, from I until W is over: input of the weight gradient
  Lent lent_output;             // output, from F on; to the next stage
  Lent lent_gradient;           // input gradient, from the end of B or I on; to the previous stage
  // Peak of an action beyond what is held when it begins. For F and I it includes the activation and the stash.
  std::int64_t forward_working = 0;
  std::int64_t backward_working = 0;
  std::int64_t input_working = 0;
  std::int64_t weight_working = 0;
};

// [device]: MemoryTrace::peak_bytes() (memory_trace.h). Requires: a validated schedule; one entry per stage.
[[nodiscard]] std::vector<std::int64_t> peak_bytes(const Schedule& schedule, std::span<const StageBytes> stages);

void require_bytes(const Schedule& schedule, std::span<const StageBytes> stages, std::span<const std::int64_t> budgets);

// The stages of device d share `devices[d]` equally; the first one takes the remainder. Nothing is lent.
[[nodiscard]] std::vector<StageBytes> share_bytes(const Schedule& schedule, std::span<const StageBytes> devices);

}  // namespace sluice::pipeline
