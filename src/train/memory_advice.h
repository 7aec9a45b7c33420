// memory_advice: the memory that a plan needs on each device, and, after one did not fit, which plans would.
// An estimate is made of what layers were measured to keep of a micro-batch and to take while they run
// (train/layer_bytes.h), at the worst moment of the schedule (tune/memory.h). Memory that is no tensor's is not in it.
// Not here: what is refused before it is run (state_memory.h), holding the limit (device/memory.h), the sentence of
// where it was met (pipeline/failure.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/layer_cost.h"
#include "core/plan.h"

namespace sluice::train {

struct Setup;

// What a plan is estimated from.
struct MemoryModel {
  std::vector<LayerCost> layers;
  bool shares_memory = true;  // tune::device_bytes()
  int processes = 1;
};

[[nodiscard]] MemoryModel measure_memory_model(const Setup& setup);

// What each device of a replica needs, each place on a device of its own; nothing for a plan that does not run.
[[nodiscard]] std::optional<std::vector<std::uint64_t>> estimate_device_bytes(const MemoryModel& model,
                                                                              const Plan& plan);

// The most of these.
[[nodiscard]] std::optional<std::uint64_t> estimate_bytes(const MemoryModel& model, const Plan& plan);

// "pipeline.chunks = 8 would need about 40.1 MiB a device, ...": what changed alone in the configuration makes a plan
// that fits nine tenths of device.memory_limit, with the least change of each kind; which comes nearest where none
// does.
[[nodiscard]] std::string what_would_fit(const MemoryModel& model, const Setup& setup, const Plan& plan);

// `error`, which a pass of `plan` ended with, and what would fit, measured now on this process's memory, outside of the
// limit, after the error is in the log. Where no limit of a CPU device refused, `error` as it is.
[[nodiscard]] Error with_what_would_fit(const Error& error, const Setup& setup, const Plan& plan);

}  // namespace sluice::train
