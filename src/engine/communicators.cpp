#include "engine/communicators.h"

#include <ATen/ATen.h>

#include "core/check.h"

namespace sluice::engine {
namespace {

std::string gpu_of(device::Device device) {
  return device.kind == device::DeviceKind::kCuda ? device::to_string(device) : std::string{};
}

}  // namespace

bool Communicators::has(const Wanted& wanted) const {
  const auto found = kept_.find(wanted.name);
  return found != kept_.end() && found->second.gpu == gpu_of(wanted.device);
}

Communicators::Made Communicators::make(const Wanted& wanted, comm::Collectives collectives) {
  check(has_peers(), "more than one process in the run that needs a communicator");
  Made made = processes_.make_communicator(wanted.name, wanted.device, collectives);
  kept_[wanted.name] = {gpu_of(wanted.device), made};
  return made;
}

Communicators::Made Communicators::get(const std::string& name) {
  const Wanted wanted{name, {}};
  return has(wanted) ? kept_.at(name).made : make(wanted, comm::Collectives::kAuto);
}

Communicators::Made Communicators::get(const std::string& name, device::Device device) {
  const Wanted wanted{name, device};
  return has(wanted) ? kept_.at(name).made : make(wanted, collectives_);
}

void Communicators::connect(const std::vector<Wanted>& wanted) {
  const at::Tensor lacking = at::zeros({std::ssize(wanted)}, at::kInt);
  auto* const counts = lacking.mutable_data_ptr<int>();
  for (std::size_t i = 0; i < wanted.size(); ++i) counts[i] = has(wanted[i]) ? 0 : 1;
  get(kSmallSums)->all_reduce(lacking).wait();
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (counts[i] > 0) make(wanted[i], collectives_);
  }
}

}  // namespace sluice::engine
