// schedule_report: what `sluice schedule` found, as a JSON object, and as a picture with a table.
// Not here: the SVG picture and the text form (pipeline/schedule/svg.h, draw.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "pipeline/schedule/action.h"
#include "pipeline/schedule/simulate.h"

namespace sluice::app {

struct ScheduleFindings {
  pipeline::Schedule schedule;
  pipeline::Simulation simulation;
  std::vector<std::int64_t> peak_bytes;  // [device]; empty: no bytes were given
};

[[nodiscard]] nlohmann::ordered_json to_json(const ScheduleFindings& findings);

// As wide as the terminal, and in colour where standard output is one that wants it.
[[nodiscard]] std::string to_text(const ScheduleFindings& findings);

}  // namespace sluice::app
