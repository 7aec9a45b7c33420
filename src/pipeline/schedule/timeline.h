// timeline: a simulated schedule as a picture in text: a line per device, time from left to right.
// Not here: the picture in an error message (draw.h), and files (svg.h).
#pragma once

#include <cstddef>
#include <string>

#include "pipeline/schedule/action.h"
#include "pipeline/schedule/simulate.h"

namespace sluice::pipeline {

struct TimelineOptions {
  std::size_t columns = 120;  // at most, of the part that shows time
  bool color = false;         // ANSI colours by operation; a device's later stages are brighter
};

// Each action is as wide as it is long. Where all of them have room their text is written in them; where that is too
// long, operation and micro-batch alone, in small letters for the later stages of a device; else a column has the
// letter of what runs at its middle, '&' for an overlapped pair and '.' for idle time.
//   device 0 |0F0 0F1 0B0     0B1     |
//   device 1 |    1F0 1B0     1F1 1B1 |
[[nodiscard]] std::string draw_timeline(const Schedule& schedule, const Simulation& simulation,
                                        const TimelineOptions& options = {});

}  // namespace sluice::pipeline
