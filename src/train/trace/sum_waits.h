// sum_waits: since when all processes were ready for each sum of the traced steps, by the clocks that were measured for
// the trace (comm/clock_offset.h): exact to what these can be off, from a run's first step on. Not here: the skew in a
// step's breakdown (ddp/sync_timing.h), which has no such measurement.
// Threads: one. Errors: those of the communicator.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "core/clock.h"
#include "profiler/trace.h"

namespace sluice::train {

// Of each bucket of each step, in their order, by this process's clock and within the bucket's own begin and end. All
// processes call it together. offset: this process's clock minus rank 0's. nullopt in every process where their sums
// differ, as those of a process that reads its GPU's records may.
[[nodiscard]] std::optional<std::vector<Nanoseconds>> when_all_were_there(const comm::Communicator& all,
                                                                          Nanoseconds offset,
                                                                          std::span<const profiler::TracedStep> steps);

}  // namespace sluice::train
