// call_table: the calls with the longest device time: GPU kernels (event `kernels`, train/trace/gpu_kernels.h) and CPU
// operators (event `operators`, train/trace/torch_steps.h). Skips invalid rows. operator_table.h formats `sluice
// profile --layers`.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace sluice::report {

// `line`: the event. Returns {"steps", "kernel_ms", "rows": [{"phase", "layer", "kernel", "calls", "time_ms",
// "share"}], "left_out_ms"}. Calls and times are per step, "share" is of all kernel time. Null if the event has no
// kernels.
[[nodiscard]] nlohmann::ordered_json kernel_table(const nlohmann::ordered_json& line);

// Like kernel_table() for operators: "operator_ms" and rows of {"pass", "layer", "operator", "calls", "self_ms",
// "share", "flops_per_s", "bytes_per_s"}. A rate is null if the operator's FLOPs or bytes are unknown.
[[nodiscard]] nlohmann::ordered_json run_operators(const nlohmann::ordered_json& line);

[[nodiscard]] std::string kernel_table_text(const nlohmann::ordered_json& table);
[[nodiscard]] std::string run_operators_text(const nlohmann::ordered_json& table);

}  // namespace sluice::report
