// memory_advice: the memory that a plan needs on each device, before it is run and after it did not fit: what
// device.memory_limit refuses at once, and which plans would fit it.
// An estimate is made of what layers were measured to keep of a micro-batch and to take while they run
// (train/layer_bytes.h), at the worst moment of the schedule (tune/memory.h). Memory that is no tensor's is not in it.
// Not here: holding the limit (device/memory.h), the sentence of where it was met (pipeline/failure.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/layer_cost.h"
#include "core/plan.h"
#include "device/device.h"
#include "device/memory_use.h"

namespace sluice::train {

struct Setup;

// What is there all the time, of one layer.
struct LayerState {
  std::string name;
  std::uint64_t parameter_bytes = 0;  // of the gradients as well
};

// The parameters, gradients and `optimizer_states` tensors of their size that `plan` puts on each of `devices`
// ([replica by replica]); replicas in one memory share all but the gradients. Throws OutOfMemoryError for the first
// device that they are too many for, with the number of stages that would fit.
void require_state_memory(const Plan& plan, const std::vector<device::Device>& devices,
                          const std::vector<LayerState>& layers, int optimizer_states, std::uint64_t limit);

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

// "pipeline.chunks = 8 would need about 40.1 MiB a device, ...": the plans near `plan` that fit the limit, with the
// least change of each kind; which comes nearest where none does.
[[nodiscard]] std::string what_would_fit(const MemoryModel& model, const Plan& plan, std::uint64_t limit);

// `error`, which a pass of `plan` under device.memory_limit ended with, and what would fit, measured now on this
// process's memory, outside of the limit. Without a limit, or on GPUs, `error` as it is.
[[nodiscard]] Error with_what_would_fit(const Error& error, const Setup& setup, const Plan& plan);

}  // namespace sluice::train
