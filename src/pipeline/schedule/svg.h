// svg: a simulated schedule as an SVG document: a row per device, a box per action, time from left to right. Each box
// has a tooltip with its action and times, and a label if it fits. A title and a legend are above the rows, the time
// axis in the unit of the costs below.
#pragma once

#include <string>

#include "pipeline/schedule/action.h"
#include "pipeline/schedule/simulate.h"

namespace sluice::pipeline {

[[nodiscard]] std::string draw_svg(const Schedule& schedule, const Simulation& simulation);

}  // namespace sluice::pipeline
