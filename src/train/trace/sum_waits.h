// sum_waits: when all processes were ready for each gradient sum of the traced steps, as exact as the trace's clocks
// (comm/clock_offset.h). Threads: one. Errors: those of the communicator.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "core/clock.h"
#include "profiler/trace.h"

namespace sluice::train {

// One time per bucket of each step, in order, by this process's clock, within the bucket's limits. All processes call
// it together. offset: this process's clock minus rank 0's. nullopt in all if their sums differ (GPU records).
[[nodiscard]] std::optional<std::vector<Nanoseconds>> when_all_were_there(const comm::Communicator& all,
                                                                          Nanoseconds offset,
                                                                          std::span<const profiler::TracedStep> steps);

}  // namespace sluice::train
