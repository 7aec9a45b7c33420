#include "engine/communicators.h"

#include "core/check.h"

namespace sluice::engine {

std::shared_ptr<comm::Communicator> Communicators::get(const std::string& name) {
  check(has_peers(), "a communicator was asked for in a run of one process");
  auto& made = made_[{name, ""}];
  if (!made) made = processes_->make_communicator(name);
  return made;
}

std::shared_ptr<comm::Communicator> Communicators::get(const std::string& name, device::Device device) {
  check(has_peers(), "a communicator was asked for in a run of one process");
  // In the memory of the CPU it does not matter which virtual device a tensor is on.
  const bool is_gpu = device.kind == device::DeviceKind::kCuda;
  auto& made = made_[{name, is_gpu ? device::to_string(device) : ""}];
  if (!made) made = processes_->make_communicator(name, device, collectives_);
  return made;
}

}  // namespace sluice::engine
