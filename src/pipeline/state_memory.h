// state_memory: what a plan puts on its devices for the whole run: parameters, gradients and optimizer state; refused
// at once where a device.memory_limit is too small for them, before the model is put there; and how such a limit is
// shared.
// Not here: what micro-batches take (tune/memory_model.h), holding the limit (device/memory.h).
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

// What is there all the time, of one layer.
struct LayerState {
  std::string name;
  std::uint64_t parameter_bytes = 0;
  std::uint64_t gradient_bytes = 0;   // of what is trained
  std::uint64_t optimizer_bytes = 0;  // of what is trained, without copies of tied parameters

  [[nodiscard]] std::uint64_t bytes() const { return parameter_bytes + gradient_bytes + optimizer_bytes; }
};

// Whether a plan trains a layer.
enum class Training { kAsItIs, kTrained, kFrozen };

// optimizer_states: count_states().
[[nodiscard]] LayerState layer_state(nn::Layer& layer, int optimizer_states, Training training = Training::kAsItIs);

// Settings that are lists, which other numbers of stages contradict.
struct ListedSettings {
  bool devices = false;    // device.list has names
  bool partition = false;  // pipeline.partition is not "auto"
};

// The settings that give so many stages a replica, as advice names them.
[[nodiscard]] std::string stages_setting(int stages, bool partition_is_listed);

// A slot's share of the limit that every device has: the slots on one device share it. 0: no limit.
[[nodiscard]] std::uint64_t limit_of_slot(std::uint64_t limit, const std::vector<device::Device>& devices);

// The parameters, gradients and optimizer state that `plan` puts on each of `devices` ([replica by replica]); replicas
// in one memory share all but the gradients, and frozen layers are once in each memory. Throws OutOfMemoryError for the
// first device that they are too many for, with the number of stages that would fit.
void require_state_memory(const Plan& plan, const std::vector<device::Device>& devices,
                          const std::vector<LayerState>& layers, std::uint64_t limit,
                          const ListedSettings& listed = {});

}  // namespace sluice::pipeline
