#include "device/graph.h"

#include <algorithm>

#include "core/check.h"
#include "core/error.h"

namespace sluice::device {

std::unique_ptr<GraphSequence> make_graph_sequence(const Stream& stream) {
  check(stream.device().kind == DeviceKind::kCuda, "a GPU stream for recording graphs");
  return backend::make_cuda_graphs(stream.device().index);
}

void require_graphs(const std::vector<Device>& devices) {
  const auto found = std::ranges::find(devices, DeviceKind::kCpu, &Device::kind);
  if (found == devices.end()) return;
  throw ConfigError(
      "device.cuda_graphs = true, but ", to_string(*found),
      " is not a GPU and cannot record graphs; set device.cuda_graphs = false or choose GPUs in device.list");
}

}  // namespace sluice::device
