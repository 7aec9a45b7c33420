// measured_plan: measures time and memory of steps in a short run in a child process (child.h), without evaluation,
// checkpoints and learning-rate schedule. Threads: one. Errors: StorageError if its files have no room.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include "config/config.h"
#include "core/error.h"

namespace sluice::train {

// Seconds are medians over the timed steps; parts are means over the devices.
struct MeasuredSteps {
  std::string failure;     // why there are no steps; empty if there are
  bool timed_out = false;  // killed at its limit
  ExitCode exit_code = ExitCode::kUsage;
  double step_s = 0;
  double error = 0;  // relative standard error of step_s
  double load_s = 0;
  double compute_s = 0;  // forward and backward
  double allreduce_exposed_s = 0;
  double update_s = 0;
  std::uint64_t peak_bytes = 0;  // of the device with the most; 0: not counted
};

struct Measuring {
  int warm_up = 3;
  int steps = 8;
  double limit_s = 60;
};

[[nodiscard]] MeasuredSteps measure_steps(const config::Config& config, const Measuring& how);

// Peak bytes of the device with the most, from a run's summary; 0: not counted.
[[nodiscard]] std::uint64_t most_of_a_device(const nlohmann::ordered_json& summary);

[[nodiscard]] config::Config short_run(config::Config config, const Measuring& how);

}  // namespace sluice::train
