// process_times: where the time of a step went, for each slot of a run, as rows that a page stacks: the slots of all
// processes where the records tell of them (event `ranks`), else those of rank 0, else the mean over the run.
// Not here: mean, slowest and spread over the processes (rank_spread.h). Pure.
#pragma once

#include <nlohmann/json.hpp>

#include "report/run_log.h"

namespace sluice::report {

// {"of": "all processes" | "rank 0" | "mean", "rows": [{"name", "steps", "parts": {...}, "step_ms"}],
//  "left_out": rows beyond the most that are drawn}; null where no time is recorded.
[[nodiscard]] nlohmann::ordered_json process_times(const RunLog& log);

}  // namespace sluice::report
