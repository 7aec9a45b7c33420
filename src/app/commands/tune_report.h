// tune_report: what `sluice tune` says of the plans that it looked at and of the one that it chose, as text and as JSON.
// Not here: the proposed batch (tune_batch.h).
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "train/tuning.h"

namespace sluice::app {

// Behind the chosen plan, where no run has verified it.
inline constexpr const char* kNotVerified = ", the best by prediction, not verified by a run";

// out: the file that has the plan.
[[nodiscard]] nlohmann::ordered_json json_of_tuning(const train::TuneResult& result, const std::string& out);
[[nodiscard]] std::string text_of_tuning(const train::TuneResult& result, const std::string& out);

}  // namespace sluice::app
