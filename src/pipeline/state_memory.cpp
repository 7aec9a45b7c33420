#include "pipeline/state_memory.h"

#include <algorithm>
#include <map>
#include <optional>

#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "device/memory.h"
#include "nn/layer.h"
#include "pipeline/schedule/plan_schedule.h"

namespace sluice::pipeline {
namespace {

using device::MemoryKind;

// The fewest contiguous stages of at most `limit` bytes of state each; nullopt if one layer alone is too large.
std::optional<int> fewest_stages(const std::vector<LayerState>& layers, std::uint64_t limit) {
  int stages = 1;
  std::uint64_t held = 0;
  for (const LayerState& layer : layers) {
    if (layer.bytes() > limit) return std::nullopt;
    if (held + layer.bytes() > limit) {
      ++stages;
      held = 0;
    }
    held += layer.bytes();
  }
  return stages;
}

// shares: slots share a device in the current plan.
std::string fitting_stages(const std::vector<LayerState>& layers, std::uint64_t limit, const Plan& plan, bool shares,
                           const ListedSettings& listed) {
  if (const auto fitting = fewest_stages(layers, limit)) {
    if (*fitting <= plan.devices() && !shares) {
      if (!listed.partition)
        return "no cut that holds them leaves room for activations; raise the limit or pipeline.stages";
      return concat("another pipeline.partition of ", counted(*fitting, "stage"), " would hold them");
    }
    return concat(plan.schedule_text.empty() ? stages_setting(*fitting, listed.partition)
                                             : concat("a pipeline.order of ", counted(*fitting, "device")),
                  listed.devices ? ", each on a device of its own in device.list," : "", " would hold them");
  }
  const auto& largest = *std::ranges::max_element(layers, {}, &LayerState::bytes);
  return concat("no number of stages is enough: layer ", largest.name, " alone needs ", human_bytes(largest.bytes()),
                "; raise the limit or choose a smaller model");
}

struct DeviceState {
  device::BytesByKind bytes;
  std::vector<std::string> slots;
};

void add_frozen(std::map<device::Device, DeviceState>& states, const Plan& plan,
                const std::vector<device::Device>& devices, const std::vector<LayerState>& layers) {
  for (auto slot = devices.begin(); plan.frozen_layers > 0 && slot != devices.end(); ++slot) {
    const auto has_copy = [&](device::Device other) { return device::same_memory(other, *slot); };
    if (std::any_of(devices.begin(), slot, has_copy)) continue;
    for (int i = 0; i < plan.frozen_layers; ++i)
      states[*slot].bytes[MemoryKind::kParameters] += layers[i].parameter_bytes;
  }
}

std::map<device::Device, DeviceState> states_of_devices(const Plan& plan, const std::vector<device::Device>& devices,
                                                        const std::vector<LayerState>& layers) {
  std::map<device::Device, DeviceState> states;
  add_frozen(states, plan, devices, layers);
  const std::vector<int> owners = stage_owners(plan);
  for (int r = 0; r < plan.replicas; ++r) {
    auto layer = static_cast<std::size_t>(plan.frozen_layers);
    for (int s = 0; s < plan.stages(); ++s) {
      const device::Device device = devices[r * plan.devices() + owners[s]];
      const bool shares = r > 0 && device::same_memory(devices[owners[s]], device);
      DeviceState& state = states[device];
      state.slots.push_back(concat("replica ", r, " stage ", s));
      for (int i = 0; i < plan.partition.layers_per_stage[s]; ++i, ++layer) {
        state.bytes[MemoryKind::kGradients] += layers[layer].gradient_bytes;
        if (!shares) state.bytes[MemoryKind::kParameters] += layers[layer].parameter_bytes;
        if (r == 0) state.bytes[MemoryKind::kOptimizer] += layers[layer].optimizer_bytes;
      }
    }
  }
  return states;
}

}  // namespace

LayerState layer_state(nn::Layer& layer, int optimizer_states, Training training) {
  LayerState state{.name = layer.name()};
  for (const nn::Parameter* parameter : layer.parameters()) {
    const std::uint64_t bytes = parameter->value.nbytes();
    state.parameter_bytes += bytes;
    const bool is_trained =
        training == Training::kAsItIs ? parameter->value.requires_grad() : training == Training::kTrained;
    if (!is_trained) continue;
    state.gradient_bytes += bytes;
    if (parameter->tied_to.empty()) state.optimizer_bytes += static_cast<std::uint64_t>(optimizer_states) * bytes;
  }
  return state;
}

std::uint64_t limit_of_slot(std::uint64_t limit, const std::vector<device::Device>& devices) {
  std::ptrdiff_t slots = 1;  // on one device; the largest number
  for (const device::Device device : devices) slots = std::max(slots, std::ranges::count(devices, device));
  return limit / static_cast<std::uint64_t>(slots);
}

std::string stages_setting(int stages, bool partition_is_listed) {
  return concat("pipeline.stages = ", stages, partition_is_listed ? R"( with pipeline.partition = "auto")" : "");
}

void require_state_memory(const Plan& plan, const std::vector<device::Device>& devices,
                          const std::vector<LayerState>& layers, std::uint64_t limit, const ListedSettings& listed) {
  if (limit == 0) return;
  for (const auto& [device, state] : states_of_devices(plan, devices, layers)) {
    std::uint64_t all = 0;
    for (const std::uint64_t bytes : state.bytes.bytes) all += bytes;
    if (all <= limit) continue;
    const bool shares = limit_of_slot(limit, devices) < limit;
    throw OutOfMemoryError(join(state.slots, ", "), ": out of memory on ", device::to_string(device), ": ",
                           device::describe(state.bytes), " are ", human_bytes(all),
                           " before any micro-batch, over its device.memory_limit of ", human_bytes(limit), "; ",
                           fitting_stages(layers, limit, plan, shares, listed));
  }
}

}  // namespace sluice::pipeline
