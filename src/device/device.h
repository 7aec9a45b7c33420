// device: which devices there are and which of them a run uses.
// A CPU device is virtual: a thread of work with its own intra-op thread count; all CPU devices share one memory.
// Not here: streams and copies (device/stream.h); thread counts (device/cpu_threads.h); memory limits
// (device/memory.h).
// Errors: ConfigError names device.list and what is available.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/Device.h>

namespace sluice::device {

enum class DeviceKind { kCpu, kCuda };

struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;

  auto operator<=>(const Device&) const = default;
};

[[nodiscard]] std::string to_string(Device device);  // "cpu:0", "cuda:1"
[[nodiscard]] Device parse_device(const std::string& text);
[[nodiscard]] c10::Device torch_device(Device device);  // every CPU device is LibTorch's one CPU

// True when tensors of both lie in the same memory, so that a view may be shared.
[[nodiscard]] bool same_memory(Device a, Device b);

// One row of `sluice devices`.
struct DeviceDescription {
  Device device;
  std::string model;           // "AMD EPYC 7R13", "NVIDIA H200"
  std::uint64_t memory_bytes;  // of the machine or of the GPU
};
[[nodiscard]] std::vector<DeviceDescription> list_devices();
// Most bytes of tensors that a device had at once; nothing for CPU devices where they are not counted
// (device/memory.h).
[[nodiscard]] std::optional<std::uint64_t> peak_bytes(Device device);
[[nodiscard]] int cuda_device_count();  // 0 without a GPU, a driver, or the CUDA side of the build

// The devices of a grid of `needed` (stages x local replicas) slots, in grid order. `list` is {"auto"}, {"cpu"},
// {"cuda"} or explicit names, of which the first are taken; a name may repeat (stages then share the device). "auto"
// takes GPUs when there are enough, else CPUs. Of `processes` on this machine that need as many each, number `process`
// takes its slice of the GPUs, and of explicit names where there are enough for all; else these are its own. CPU
// devices are virtual: every process has a cpu:0.
[[nodiscard]] std::vector<Device> choose_devices(const std::vector<std::string>& list, int needed, int process = 0,
                                                 int processes = 1);
// Of explicit names: those that no process on this machine takes.
[[nodiscard]] std::vector<std::string> unused_names(const std::vector<std::string>& list, int needed, int processes);

}  // namespace sluice::device
