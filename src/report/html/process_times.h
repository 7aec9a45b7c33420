// process_times: parts of a step's time per slot, as rows to stack: the slots of all processes if recorded (event
// `ranks`), otherwise of rank 0, otherwise the mean over the run. rank_spread.h compares the processes.
#pragma once

#include <nlohmann/json.hpp>

#include "report/run_log.h"

namespace sluice::report {

// {"of": "all processes" | "rank 0" | "mean", "rows": [{"name", "steps", "parts": {...}, "step_ms"}], "left_out":
// number of omitted rows}; null if no times were recorded.
[[nodiscard]] nlohmann::ordered_json process_times(const RunLog& log);

}  // namespace sluice::report
