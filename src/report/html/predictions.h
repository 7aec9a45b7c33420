// predictions: predicted and measured step times of a run: from profile.json in its directory if it fits the run, and
// at each change of plan.
#pragma once

#include <nlohmann/json.hpp>

#include "report/run_report.h"

namespace sluice::report {

// A list of {"what", "predicted_ms", "measured_ms"}. If both times are null, "what" is a sentence.
[[nodiscard]] nlohmann::ordered_json predictions_of(const RunReport& run, const nlohmann::ordered_json& transitions);

}  // namespace sluice::report
