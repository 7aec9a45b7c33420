#include "device/device.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>

#include <sys/sysinfo.h>

#include "core/concat.h"
#include "core/error.h"
#include "device/backend.h"
#include "device/memory.h"

namespace sluice::device {
namespace {

std::string cpu_model() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "CPU";
}

std::uint64_t machine_memory() {
  struct sysinfo info {};
  return ::sysinfo(&info) == 0 ? std::uint64_t{info.totalram} * info.mem_unit : 0;
}

std::vector<Device> consecutive(DeviceKind kind, int first, int count) {
  std::vector<Device> devices;
  for (int i = 0; i < count; ++i) devices.push_back({kind, first + i});
  return devices;
}

// A launcher such as Slurm may show each process only its own GPUs.
bool devices_were_dealt_out() { return std::getenv("CUDA_VISIBLE_DEVICES") != nullptr; }

// Independent of the plan, so that a process keeps its devices when the plan changes.
int slice_begin(std::size_t devices, int process, int processes) {
  return static_cast<int>(devices) / processes * process;
}

// True if explicit names suffice for a slice per process; otherwise every process takes the first names.
bool names_are_for_all(const std::vector<std::string>& list, int needed, int processes) {
  return list.size() >= std::size_t(needed) * std::size_t(processes);
}

std::vector<Device> explicit_devices(const std::vector<std::string>& list, int needed, int process, int processes) {
  std::vector<Device> devices;
  for (const auto& name : list) devices.push_back(parse_device(name));
  if (static_cast<int>(devices.size()) < needed) {
    throw ConfigError("device.list names ", devices.size(), " devices, but pipeline.stages x replicas.local needs ",
                      needed, "; list ", needed, " devices (a name may repeat) or set device.list = \"auto\"");
  }
  if (names_are_for_all(list, needed, processes))
    devices.erase(devices.begin(), devices.begin() + slice_begin(list.size(), process, processes));
  devices.resize(static_cast<std::size_t>(needed));
  for (const Device device : devices) {
    if (device.kind == DeviceKind::kCuda && device.index >= cuda_device_count()) {
      throw ConfigError("device.list names ", to_string(device), ", but ", cuda_device_count(),
                        " CUDA devices are visible; run `sluice devices` to see what there is");
    }
  }
  return devices;
}

}  // namespace

std::string to_string(Device device) {
  return concat(device.kind == DeviceKind::kCpu ? "cpu:" : "cuda:", device.index);
}

Device parse_device(const std::string& text) {
  const auto colon = text.find(':');
  const std::string kind = text.substr(0, colon);
  const std::string number = colon == std::string::npos ? "0" : text.substr(colon + 1);
  int index = -1;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), index);
  const bool number_ok = error == std::errc{} && end == number.data() + number.size() && index >= 0;
  if (!number_ok || (kind != "cpu" && kind != "cuda")) {
    throw ConfigError("device.list: '", text, "' is not a device; use names such as \"cpu:0\" or \"cuda:1\"");
  }
  return {kind == "cpu" ? DeviceKind::kCpu : DeviceKind::kCuda, index};
}

c10::Device torch_device(Device device) {
  if (device.kind == DeviceKind::kCpu) return {c10::kCPU};
  return {c10::kCUDA, static_cast<c10::DeviceIndex>(device.index)};
}

bool same_memory(Device a, Device b) { return torch_device(a) == torch_device(b); }

std::optional<std::uint64_t> peak_bytes(Device device) {
  if (device.kind == DeviceKind::kCuda) return backend::cuda_peak_bytes(device.index);
  return memory_is_counted() ? std::optional(memory_use(device).peak) : std::nullopt;
}

int cuda_device_count() { return backend::cuda_device_count(); }

std::vector<DeviceDescription> list_devices() {
  std::vector<DeviceDescription> devices{{{DeviceKind::kCpu, 0}, cpu_model(), machine_memory()}};
  for (int i = 0; i < cuda_device_count(); ++i) {
    const auto properties = backend::cuda_properties(i);
    devices.push_back({{DeviceKind::kCuda, i}, properties.name, properties.memory_bytes});
  }
  return devices;
}

std::vector<std::string> unused_names(const std::vector<std::string>& list, int needed, int processes) {
  const int users = names_are_for_all(list, needed, processes) ? processes : 1;
  std::vector<std::string> unused;
  for (int process = 0; process < users; ++process) {
    const bool is_last = process + 1 == users;
    const std::ptrdiff_t begin = slice_begin(list.size(), process, users);
    const std::ptrdiff_t end = is_last ? std::ssize(list) : slice_begin(list.size(), process + 1, users);
    unused.insert(unused.end(), list.begin() + std::min(begin + needed, end), list.begin() + end);
  }
  return unused;
}

std::vector<Device> choose_devices(const std::vector<std::string>& list, int needed, int process, int processes) {
  if (list.size() != 1 || (list[0] != "auto" && list[0] != "cpu" && list[0] != "cuda"))
    return explicit_devices(list, needed, process, processes);
  if (list[0] == "cpu") return consecutive(DeviceKind::kCpu, 0, needed);
  const int of_all = needed * processes;
  if (const int all = cuda_device_count(); all >= of_all)
    return consecutive(DeviceKind::kCuda, slice_begin(static_cast<std::size_t>(all), process, processes), needed);
  if (cuda_device_count() == needed && devices_were_dealt_out()) return consecutive(DeviceKind::kCuda, 0, needed);
  if (list[0] == "auto") return consecutive(DeviceKind::kCpu, 0, needed);
  throw ConfigError("device.list = \"cuda\" needs ", of_all, " CUDA devices",
                    processes > 1 ? concat(" for the ", processes, " processes of this machine") : "", ", but ",
                    cuda_device_count(),
                    " are visible; set device.list = \"cpu\" or share one GPU by repeating \"cuda:0\"");
}

}  // namespace sluice::device
