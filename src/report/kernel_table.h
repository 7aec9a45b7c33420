// kernel_table: the kernels that a run's GPUs spent their time in (event `kernels`, train/gpu_kernels.h), longest
// first, by phase and layer. Pure functions. Rows that are none are left out.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace sluice::report {

// `line`: the event. {"steps", "kernel_ms": of a step, "rows": a list of {"phase", "layer", "kernel", "calls" and
// "time_ms" a step, "share" of all kernels' time}, "left_out_ms" a step}; null where it tells of no kernel.
[[nodiscard]] nlohmann::ordered_json kernel_table(const nlohmann::ordered_json& line);

// The longest ones as lines for people; empty for null.
[[nodiscard]] std::string kernel_table_text(const nlohmann::ordered_json& table);

}  // namespace sluice::report
