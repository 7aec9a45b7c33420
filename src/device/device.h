// device: lists the available devices and chooses those of a run. A CPU device is virtual: a device thread with its own
// number of intra-op threads; all CPU devices share one memory.
// Errors: ConfigError naming device.list and the available devices.
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

[[nodiscard]] std::string to_string(Device device);
[[nodiscard]] Device parse_device(const std::string& text);
[[nodiscard]] c10::Device torch_device(Device device);  // every CPU device maps to LibTorch's single CPU

// True if tensors of both devices lie in the same memory, so that a view can be shared.
[[nodiscard]] bool same_memory(Device a, Device b);

struct DeviceDescription {
  Device device;
  std::string model;           // "AMD EPYC 7R13", "NVIDIA H200"
  std::uint64_t memory_bytes;  // memory of the machine or of the GPU
};
[[nodiscard]] std::vector<DeviceDescription> list_devices();
// Peak bytes of tensors on a device; nothing for CPU devices if memory is not counted (device/memory.h).
[[nodiscard]] std::optional<std::uint64_t> peak_bytes(Device device);
[[nodiscard]] int cuda_device_count();  // 0 without a GPU, a driver or a CUDA build

// Devices for `needed` slots (stages x local replicas), in grid order. `list` is {"auto"}, {"cpu"}, {"cuda"} or names,
// of which the first are used; a repeated name means that stages share a device. "auto" takes GPUs if there are enough,
// otherwise CPUs. If `processes` on this machine each need as many, number `process` takes its slice of the GPUs, and
// of the names if they suffice for all. Every process has its own virtual CPU devices.
[[nodiscard]] std::vector<Device> choose_devices(const std::vector<std::string>& list, int needed, int process = 0,
                                                 int processes = 1);
[[nodiscard]] std::vector<std::string> unused_names(const std::vector<std::string>& list, int needed, int processes);

}  // namespace sluice::device
