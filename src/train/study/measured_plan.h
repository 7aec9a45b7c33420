// measured_plan: what steps of a configuration take, and hold, really: a short run of its own in a child process
// (child.h), without evaluation, checkpoints and a learning rate that moves. Not here: what they were predicted to take
// (what_if.h). Threads: one. Errors: StorageError where there is no room for its files.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include "config/config.h"
#include "core/error.h"

namespace sluice::train {

// Seconds are medians over the timed steps, parts means over the devices.
struct MeasuredSteps {
  std::string failure;                    // why there are none; empty: there are
  bool timed_out = false;                 // it was ended by its limit
  ExitCode exit_code = ExitCode::kUsage;  // of a failure
  double step_s = 0;
  double error = 0;  // of step_s, the standard error of the median, relative
  double load_s = 0;
  double compute_s = 0;  // forward and backward
  double allreduce_exposed_s = 0;
  double update_s = 0;
  std::uint64_t peak_bytes = 0;  // of the device that held most; 0: not counted
};

struct Measuring {
  int warm_up = 3;
  int steps = 8;
  double limit_s = 60;  // of the whole run
};

[[nodiscard]] MeasuredSteps measure_steps(const config::Config& config, const Measuring& how);

// Bytes that the device that held most has held, by the summary of a run; 0: not counted.
[[nodiscard]] std::uint64_t most_of_a_device(const nlohmann::ordered_json& summary);

// The configuration of such a run.
[[nodiscard]] config::Config short_run(config::Config config, const Measuring& how);

}  // namespace sluice::train
