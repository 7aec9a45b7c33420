// prediction: what a plan's steps and devices were predicted to take, beside what they took, as the summary of a run
// has it. Not here: predicting (tune/predict.h, train/plan/step_predictor.h). Values and pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

namespace sluice::report {

inline constexpr auto kByProfile = "profile";  // with links, sums, and what devices take from each other
inline constexpr auto kByLayers = "layers";    // what layers cost, and what else is known

struct Prediction {
  double step_s = 0;
  std::string by;                                     // one of these
  std::map<std::string, std::uint64_t> device_bytes;  // that each device of this process holds at most
};

// Of the steps under the last plan, without its first ones.
struct MeasuredRun {
  std::optional<double> step_ms;        // mean
  std::optional<double> by_stages_ms;   // StageTimes::step_s()
  nlohmann::ordered_json device_bytes;  // peaks of training steps, by device
};

// "predicted" of a summary: step_ms, by, error (of the step, relative), by_stages_ms, stages_error, device_bytes,
// measured_device_bytes, memory_error (of the device that is furthest off) and memory_error_device. Null where nothing
// is known.
[[nodiscard]] nlohmann::ordered_json prediction_fields(const std::optional<Prediction>& prediction,
                                                       const MeasuredRun& measured);

// The same in words; empty where there is nothing to say.
[[nodiscard]] std::string prediction_line(const nlohmann::ordered_json& fields);

}  // namespace sluice::report
