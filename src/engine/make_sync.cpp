#include "engine/make_sync.h"

#include <utility>

#include "comm/no_sync.h"
#include "core/concat.h"
#include "ddp/reducer.h"

namespace sluice::engine {
namespace {

// A communicator for the gradients of each stage, so that they do not wait for each other. On the devices of replica 0,
// where the local sums are.
ddp::Network network_of(Communicators& communicators, const std::vector<device::Device>& of_stages) {
  ddp::Network network{.of_stage = {}, .small = communicators.get(kSmallSums)};
  for (std::size_t s = 0; s < of_stages.size(); ++s)
    network.of_stage.push_back(communicators.get(concat("the gradients of stage ", s), of_stages[s]));
  return network;
}

std::vector<device::Device> devices_of(const std::vector<comm::SyncedStage>& stages) {
  std::vector<device::Device> devices;
  for (const comm::SyncedStage& stage : stages) devices.push_back(stage.devices.front());
  return devices;
}

}  // namespace

void connect_stages(Communicators& communicators, const std::vector<device::Device>& of_stages) {
  (void)network_of(communicators, of_stages);
}

std::shared_ptr<comm::ReplicaSync> make_sync(SyncRequest request) {
  if (request.stages.front().devices.size() == 1 && request.communicators == nullptr)
    return std::make_shared<comm::NoSync>();
  ddp::Network network;
  if (request.communicators != nullptr) network = network_of(*request.communicators, devices_of(request.stages));
  return std::make_shared<ddp::Reducer>(
      std::move(request.stages), ddp::ReducerOptions{request.bucket_bytes, request.record_times, request.sends_bf16},
      std::move(network));
}

}  // namespace sluice::engine
