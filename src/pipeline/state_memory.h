// state_memory: the memory that a plan needs on its devices for the whole run: parameters, gradients and optimizer
// state. A device.memory_limit that is too small is rejected before the model is put on the devices.
// tune/memory_model.h adds the memory of micro-batches; device/memory.h enforces the limit.
// Sizes in bytes. Threads: pure functions. Errors: OutOfMemoryError of require_state_memory().
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/plan.h"
#include "device/device.h"

namespace sluice::nn {
class Layer;
}

namespace sluice::pipeline {

struct LayerState {
  std::string name;
  std::uint64_t parameter_bytes = 0;
  std::uint64_t gradient_bytes = 0;   // of trained parameters
  std::uint64_t optimizer_bytes = 0;  // of trained parameters, without copies of tied ones

  [[nodiscard]] std::uint64_t bytes() const { return parameter_bytes + gradient_bytes + optimizer_bytes; }
};

enum class Training { kAsItIs, kTrained, kFrozen };

// optimizer_states: the result of count_states().
[[nodiscard]] LayerState layer_state(nn::Layer& layer, int optimizer_states, Training training = Training::kAsItIs);

// Settings that are lists; another number of stages contradicts them.
struct ListedSettings {
  bool devices = false;    // device.list has names
  bool partition = false;  // pipeline.partition is not "auto"
};

// Names, for advice, the settings that give a replica `stages` stages.
[[nodiscard]] std::string stages_setting(int stages, bool partition_is_listed);

// A slot's share of the limit of every device; slots on one device share it. 0: no limit.
[[nodiscard]] std::uint64_t limit_of_slot(std::uint64_t limit, const std::vector<device::Device>& devices);

// Checks the parameters, gradients and optimizer state that `plan` puts on each of `devices` ([replica by replica]).
// Replicas in one memory share all but the gradients; frozen layers exist once in each memory. Throws OutOfMemoryError
// for the first device that has too little memory, with the number of stages that would fit.
void require_state_memory(const Plan& plan, const std::vector<device::Device>& devices,
                          const std::vector<LayerState>& layers, std::uint64_t limit,
                          const ListedSettings& listed = {});

}  // namespace sluice::pipeline
