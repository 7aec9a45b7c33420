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

namespace sluice::config {
struct Config;
}
namespace sluice::nn {
class Layer;
}

namespace sluice::train {

struct Setup;

// What is there all the time, of one layer.
struct LayerState {
  std::string name;
  std::uint64_t parameter_bytes = 0;  // of the gradients as well
  std::uint64_t optimizer_bytes = 0;  // nothing for copies of tied parameters

  [[nodiscard]] std::uint64_t bytes() const { return 2 * parameter_bytes + optimizer_bytes; }
};

// optimizer_states: count_states().
[[nodiscard]] LayerState state_of(nn::Layer& layer, int optimizer_states);

// Settings that are lists, which other numbers of stages contradict.
struct ListedSettings {
  bool devices = false;    // device.list has names
  bool partition = false;  // pipeline.partition is not "auto"
};

[[nodiscard]] ListedSettings listed_settings(const config::Config& config);

// A place's share of the limit that every device has: the places on one device share it. 0: no limit.
[[nodiscard]] std::uint64_t limit_of_place(std::uint64_t limit, const std::vector<device::Device>& devices);

// The parameters, gradients and optimizer state that `plan` puts on each of `devices` ([replica by replica]); replicas
// in one memory share all but the gradients. Throws OutOfMemoryError for the first device that they are too many for,
// with the number of stages that would fit.
void require_state_memory(const Plan& plan, const std::vector<device::Device>& devices,
                          const std::vector<LayerState>& layers, std::uint64_t limit,
                          const ListedSettings& listed = {});

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
