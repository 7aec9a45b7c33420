// predictions: what was predicted of a run's steps, beside what was measured: by profile.json in its directory, and at
// each change of plan. Pure but for reading that file.
#pragma once

#include <nlohmann/json.hpp>

#include "report/run_log.h"

namespace sluice::report {

// A list of {"what", "predicted_ms", "measured_ms"}; the two may be null, but not both.
[[nodiscard]] nlohmann::ordered_json predictions_of(const RunLog& log, const nlohmann::ordered_json& happenings);

}  // namespace sluice::report
