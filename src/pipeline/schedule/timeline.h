// timeline: a simulated schedule as text: one line per device, time from left to right.
#pragma once

#include <cstddef>
#include <string>

#include "pipeline/schedule/action.h"
#include "pipeline/schedule/simulate.h"

namespace sluice::pipeline {

struct TimelineOptions {
  std::size_t columns = 120;  // largest width of the part that shows time
  bool color = false;         // ANSI colours by operation; later stages of a device are brighter
};

// The width of an action is proportional to its time. If all actions have room, they show their text; else, if they
// have room for it, operation and micro-batch, in small letters for later stages of a device. Otherwise each column
// shows the letter of the action at its middle, '&' for an overlapped pair and '.' for idle time.
//   device 0 |0F0 0F1 0B0     0B1     |
//   device 1 |    1F0 1B0     1F1 1B1 |
[[nodiscard]] std::string draw_timeline(const Schedule& schedule, const Simulation& simulation,
                                        const TimelineOptions& options = {});

}  // namespace sluice::pipeline
