// clock_offset: how far the clock of a process differs from rank 0's. Clocks of different machines have different
// origins. The processes meet several times, and no process leaves a meeting before all have arrived. Each meeting
// therefore bounds the difference from below and above; together the meetings give a narrow interval. The bound holds
// for any network delay. Only clocks that drift during the meetings (milliseconds) break it. For a longer period,
// measure at both ends and combine with covering().
// Threads: one. Errors: those of the communicator.
#pragma once

#include <span>

#include "comm/communicator.h"
#include "core/clock.h"

namespace sluice::comm {

struct ClockOffset {
  Nanoseconds offset = 0;  // this process's clock minus rank 0's
  Nanoseconds error = 0;   // largest absolute error of `offset`
};

struct Meeting {
  Nanoseconds came = 0;
  Nanoseconds left = 0;
};

// Both spans hold the same meetings, at least one.
[[nodiscard]] ClockOffset clock_offset(std::span<const Meeting> own, std::span<const Meeting> of_rank_0);

// Bounds the offset at any time between the two measurements, for clocks that drift steadily.
[[nodiscard]] ClockOffset covering(const ClockOffset& one, const ClockOffset& other);

// Collective: all processes call it together.
[[nodiscard]] ClockOffset measure_clock_offset(const Communicator& communicator);

}  // namespace sluice::comm
