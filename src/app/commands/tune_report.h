// tune_report: the result of `sluice tune` as text and JSON; tune_batch.h formats the proposed batch.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "app/commands/tune_files.h"
#include "train/study/tuning.h"

namespace sluice::app {

[[nodiscard]] nlohmann::ordered_json json_of_tuning(const train::TuneResult& result, const TuneFiles& files);
[[nodiscard]] std::string text_of_tuning(const train::TuneResult& result, const TuneFiles& files);

}  // namespace sluice::app
