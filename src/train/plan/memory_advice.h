// memory_advice: after a plan did not fit its devices, which would: settings of the configuration, each changed alone.
// Not here: the estimates (tune/memory_model.h), what is refused before it is run (pipeline/state_memory.h), holding
// the limit (device/memory.h), the sentence of where it was met (pipeline/failure.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/plan.h"
#include "tune/memory_model.h"

namespace sluice::config {
struct Config;
}

namespace sluice::train {

struct Setup;

// What to do about too little memory for a training pass, by the keys of this run, as the end of a sentence.
[[nodiscard]] std::string less_memory(const config::Config& config);

[[nodiscard]] tune::MemoryModel measure_memory_model(const Setup& setup);

// "pipeline.chunks = 8 would need about 40.1 MiB a device, ...": what changed alone in the configuration makes a plan
// that fits nine tenths of device.memory_limit, with the least change of each kind; which comes nearest where none
// does.
[[nodiscard]] std::string fitting_advice(const tune::MemoryModel& model, const Setup& setup, const Plan& plan);

// `error`, which a pass of `plan` ended with, and what would fit, measured now on this process's memory, outside of the
// limit, after the error is in the log. Where no limit of a CPU device refused, `error` as it is.
[[nodiscard]] Error with_fitting_advice(const Error& error, const Setup& setup, const Plan& plan);

}  // namespace sluice::train
