// tune_report: what `sluice tune` says of the plans that it looked at and of the one that it chose, as text and as
// JSON. Not here: the proposed batch (tune_batch.h).
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "app/commands/tune_files.h"
#include "train/study/tuning.h"

namespace sluice::app {

[[nodiscard]] nlohmann::ordered_json json_of_tuning(const train::TuneResult& result, const TuneFiles& files);
[[nodiscard]] std::string text_of_tuning(const train::TuneResult& result, const TuneFiles& files);

}  // namespace sluice::app
