// gantt: a step as rows of boxes over time: a traced one, and beside it the schedule of the plan, simulated with the
// times that its devices took in the run. Not here: reading traces (trace_reader.h), drawing (timeline.js).
// Pure but for reading the traces of a run. Errors: none; what cannot be had is a sentence.
#pragma once

#include <nlohmann/json.hpp>

#include "report/html/trace_reader.h"
#include "report/run_log.h"

namespace sluice::report {

// {"title", "length_ms", "rows": [{"name", "boxes": [[start_ms, length_ms, kind, label], ...]}]}; null for no bar.
// name: of the process, before each row; empty for one.
[[nodiscard]] nlohmann::ordered_json measured_gantt(const std::map<std::string, std::vector<TraceBar>>& processes,
                                                    std::int64_t step);

// The same of the plan's schedule; null where the records do not say enough, and where there is nothing to arrange.
[[nodiscard]] nlohmann::ordered_json simulated_gantt(const RunLog& log);

// {"measured", "simulated", "note"}; null where there is neither.
[[nodiscard]] nlohmann::ordered_json gantt_of(const RunLog& log);

}  // namespace sluice::report
