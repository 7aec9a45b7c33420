// clock_offset: how far a process's clock differs from rank 0's. No process leaves a meeting before all have arrived,
// so each meeting bounds the difference, except for drift during the meetings (milliseconds). For longer periods use
// covering(). Threads: one. Errors: those of the communicator.
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

[[nodiscard]] ClockOffset clock_offset(std::span<const Meeting> own, std::span<const Meeting> of_rank_0);

// Bounds the offset at any time between the two measurements, for clocks that drift steadily.
[[nodiscard]] ClockOffset covering(const ClockOffset& one, const ClockOffset& other);

[[nodiscard]] ClockOffset measure_clock_offset(const Communicator& communicator);

}  // namespace sluice::comm
