// call_table: the calls that a run's devices spent their time in, longest first: kernels of GPUs (event `kernels`,
// train/trace/gpu_kernels.h) and operators of CPU devices (event `operators`, train/trace/torch_steps.h). Not here: the
// operators of `sluice profile --layers` (operator_table.h). Pure functions. Rows that are none are left out.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace sluice::report {

// `line`: the event. {"steps", "kernel_ms": of a step, "rows": a list of {"phase", "layer", "kernel", "calls" and
// "time_ms" a step, "share" of all kernels' time}, "left_out_ms" a step}; null where it tells of no kernel.
[[nodiscard]] nlohmann::ordered_json kernel_table(const nlohmann::ordered_json& line);

// The same of operators: "operator_ms" and rows of {"pass", "layer", "operator", "calls" and "self_ms" a step, "share",
// "flops_per_s", "bytes_per_s"}; the rates are null where the operator is not known to compute, or to move, anything.
[[nodiscard]] nlohmann::ordered_json run_operators(const nlohmann::ordered_json& line);

// The longest ones as lines for people; empty for null.
[[nodiscard]] std::string kernel_table_text(const nlohmann::ordered_json& table);
[[nodiscard]] std::string run_operators_text(const nlohmann::ordered_json& table);

}  // namespace sluice::report
