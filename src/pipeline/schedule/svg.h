// svg: a simulated schedule as an SVG document: a row per device, a box with a tooltip per action, and a time axis.
#pragma once

#include <string>

#include "pipeline/schedule/action.h"
#include "pipeline/schedule/simulate.h"

namespace sluice::pipeline {

[[nodiscard]] std::string draw_svg(const Schedule& schedule, const Simulation& simulation);

}  // namespace sluice::pipeline
