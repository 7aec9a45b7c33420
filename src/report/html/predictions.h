// predictions: what was predicted of a run's steps, beside what was measured: by profile.json in its directory, where
// it was made for such steps, and at each change of plan. Pure but for reading that file.
#pragma once

#include <nlohmann/json.hpp>

#include "report/run_report.h"

namespace sluice::report {

// A list of {"what", "predicted_ms", "measured_ms"}; both null: "what" is a sentence.
[[nodiscard]] nlohmann::ordered_json predictions_of(const RunReport& run, const nlohmann::ordered_json& transitions);

}  // namespace sluice::report
