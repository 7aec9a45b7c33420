// prediction: compares the predicted step time and memory of a plan with the measured ones, for the summary of a run.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

namespace sluice::report {

inline constexpr auto kByProfile = "profile";  // includes links, all-reduces and contention between devices
inline constexpr auto kByLayers = "layers";    // layer costs and what else is known

struct Prediction {
  double step_s = 0;
  std::string by;
  std::map<std::string, std::uint64_t> device_bytes;  // peak bytes of each device of this process
};

// Measurements under the last plan, without its first steps.
struct MeasuredRun {
  std::optional<double> step_ms;
  std::optional<double> by_stages_ms;
  nlohmann::ordered_json device_bytes;
};

// The field "predicted" of a summary: step_ms, by, error (relative, of the step), by_stages_ms, stages_error,
// device_bytes, measured_device_bytes, memory_error (largest relative error of a device) and memory_error_device. Null
// without a prediction or measurement.
[[nodiscard]] nlohmann::ordered_json prediction_fields(const std::optional<Prediction>& prediction,
                                                       const MeasuredRun& measured);

[[nodiscard]] std::string prediction_line(const nlohmann::ordered_json& fields);

}  // namespace sluice::report
