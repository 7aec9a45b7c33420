// clock_offset: by how much the clock of a process of the run differs from rank 0's. Clocks of machines start anywhere.
// The processes meet some times, and nobody leaves a meeting before all have come to it: so each meeting says that the
// difference lies between two numbers, and all of them together between two close ones. The bound holds whatever the
// network does; only clocks that drift during the meetings (milliseconds) would break it. For a longer time it is
// measured at both ends (covering()). Not here: what is aligned with it (train/trace/step_trace.h). Threads: one.
// Errors: those of the communicator.
#pragma once

#include <span>

#include "comm/communicator.h"
#include "core/clock.h"

namespace sluice::comm {

struct ClockOffset {
  Nanoseconds offset = 0;  // this process's clock minus rank 0's
  Nanoseconds error = 0;   // off by so much at most
};

// One process's times of a meeting, by its own clock.
struct Meeting {
  Nanoseconds came = 0;
  Nanoseconds left = 0;
};

// Of the same meetings, not none.
[[nodiscard]] ClockOffset clock_offset(std::span<const Meeting> own, std::span<const Meeting> of_rank_0);

// Bounds the offset at any time between the two measurements, for clocks that drift steadily.
[[nodiscard]] ClockOffset covering(const ClockOffset& one, const ClockOffset& other);

// All processes call it together.
[[nodiscard]] ClockOffset measure_clock_offset(const Communicator& communicator);

}  // namespace sluice::comm
