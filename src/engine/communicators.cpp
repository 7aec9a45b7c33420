#include "engine/communicators.h"

#include "core/check.h"

namespace sluice::engine {

template <typename Make>
Communicators::Made Communicators::get(const std::string& name, const std::string& place, Make make) {
  check(has_peers(), "a communicator was asked for in a run of one process");
  Made& made = made_[{name, place}];
  if (!made) made = make();
  return made;
}

Communicators::Made Communicators::get(const std::string& name) {
  return get(name, "", [&] { return processes_.make_communicator(name); });
}

Communicators::Made Communicators::get(const std::string& name, device::Device device) {
  // In the memory of the CPU it does not matter which virtual device a tensor is on.
  const bool is_gpu = device.kind == device::DeviceKind::kCuda;
  return get(name, is_gpu ? device::to_string(device) : "",
             [&] { return processes_.make_communicator(name, device, collectives_); });
}

}  // namespace sluice::engine
