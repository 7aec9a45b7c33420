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
  std::vector<std::int64_t> peak_bytes;  // [device]; empty if no bytes were given
};

[[nodiscard]] nlohmann::ordered_json to_json(const ScheduleFindings& findings);

// Uses the terminal's width, and colour if standard output supports it.
[[nodiscard]] std::string to_text(const ScheduleFindings& findings);

}  // namespace sluice::app
