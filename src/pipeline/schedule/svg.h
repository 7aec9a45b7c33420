// svg: a simulated schedule as an SVG document: a row per device, a box per action, time from left to right.
// Each box has its action and its times as a tooltip, and its text where there is room. Above the rows a title and what
// the colours mean, below them the time axis in the unit of the simulated costs.
#pragma once

#include <string>

#include "pipeline/schedule/action.h"
#include "pipeline/schedule/simulate.h"

namespace sluice::pipeline {

[[nodiscard]] std::string draw_svg(const Schedule& schedule, const Simulation& simulation);

}  // namespace sluice::pipeline
