// gantt: a step as rows of boxes over time: a traced step, and the plan's schedule simulated with the device times of
// the run. trace_reader.h reads traces; timeline.js draws. Never throws; problems are returned as sentences.
#pragma once

#include <nlohmann/json.hpp>

#include "report/html/trace_reader.h"
#include "report/run_log.h"

namespace sluice::report {

// {"title", "length_ms", "rows": [{"name", "boxes": [[start_ms, length_ms, kind, label], ...]}]}; null without bars.
// Keys of `processes` prefix each row; the key of a single process is empty.
[[nodiscard]] nlohmann::ordered_json measured_gantt(const std::map<std::string, std::vector<TraceBar>>& processes,
                                                    std::int64_t step);

// The simulated schedule in the same form; null if the records are insufficient or the plan has no schedule.
[[nodiscard]] nlohmann::ordered_json simulated_gantt(const RunLog& log);

// {"measured", "simulated", "note"}; null if there is neither.
[[nodiscard]] nlohmann::ordered_json gantt_of(const RunLog& log);

}  // namespace sluice::report
