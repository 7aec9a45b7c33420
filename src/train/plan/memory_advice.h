// memory_advice: single changes of the configuration that make a plan fit its devices (tune/memory_model.h).
#pragma once

#include <string>

#include "core/error.h"
#include "core/plan.h"
#include "tune/memory_model.h"

namespace sluice::config {
struct Config;
}

namespace sluice::train {

struct Setup;

[[nodiscard]] std::string less_memory(const config::Config& config);

[[nodiscard]] tune::MemoryModel measure_memory_model(const Setup& setup);

// "pipeline.chunks = 8 would need about 40.1 MiB a device, ...": for each setting, the smallest change that fits 9/10
// of device.memory_limit. If none fits: the change that needs least.
[[nodiscard]] std::string fitting_advice(const tune::MemoryModel& model, const Setup& setup, const Plan& plan);

// Adds fitting_advice() to the error of a pass of `plan`, which it logs first. The measurement ignores the limit.
// Returns `error` unchanged unless a CPU device's limit caused it.
[[nodiscard]] Error with_fitting_advice(const Error& error, const Setup& setup, const Plan& plan);

}  // namespace sluice::train
