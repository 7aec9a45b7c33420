#include "engine/make_sync.h"

#include <algorithm>
#include <map>
#include <utility>

#include "comm/compare.h"
#include "comm/no_sync.h"
#include "core/concat.h"
#include "core/error.h"
#include "ddp/reducer.h"

namespace sluice::engine {
namespace {

// [stage]: the first stage on the same GPU; a stage on the CPU is alone.
std::vector<int> first_on_gpu(const std::vector<device::Device>& of_stages) {
  std::vector<int> first;
  for (const device::Device device : of_stages) {
    const bool is_gpu = device.kind == device::DeviceKind::kCuda;
    const auto found = std::ranges::find(of_stages, device);
    first.push_back(is_gpu ? static_cast<int>(found - of_stages.begin()) : static_cast<int>(first.size()));
  }
  return first;
}

std::string name_of(int stage) { return concat("the gradients of stage ", stage); }

ddp::Network network_of(Communicators& communicators, const std::vector<device::Device>& of_stages,
                        const std::vector<int>& order) {
  ddp::Network network{.lines = {}, .small = communicators.get(kSmallSums)};
  for (std::vector<int>& stages : stages_by_line(of_stages, order)) {
    const int first = std::ranges::min(stages);
    network.lines.push_back(
        {communicators.get(name_of(first), of_stages[static_cast<std::size_t>(first)]), std::move(stages)});
  }
  return network;
}

std::vector<device::Device> devices_of(const std::vector<comm::SyncedStage>& stages) {
  std::vector<device::Device> devices;
  for (const comm::SyncedStage& stage : stages) devices.push_back(stage.devices.front());
  return devices;
}

}  // namespace

void connect_stages(Communicators& communicators, const std::vector<device::Device>& of_stages) {
  const std::vector<int> first = first_on_gpu(of_stages);
  if (const auto difference = comm::find_difference(*communicators.get(kSmallSums), {first.begin(), first.end()})) {
    throw ConfigError(
        concat(difference->describe_ranks(), difference->ranks.size() > 1 ? " map their stages" : " maps its stages",
               " to GPUs differently from rank 0 (stages that share a GPU differ); give every process the "
               "same layout in device.list"));
  }
  std::vector<Communicators::Wanted> wanted;
  for (int stage = 0; stage < static_cast<int>(first.size()); ++stage) {
    if (first[static_cast<std::size_t>(stage)] == stage)
      wanted.push_back({name_of(stage), of_stages[static_cast<std::size_t>(stage)]});
  }
  communicators.connect(wanted);
}

std::vector<std::vector<int>> stages_by_line(const std::vector<device::Device>& of_stages,
                                             const std::vector<int>& order) {
  const std::vector<int> first = first_on_gpu(of_stages);
  std::map<int, std::vector<int>> lines;
  for (std::size_t i = 0; i < first.size(); ++i) {
    const std::size_t stage = order.empty() ? first.size() - 1 - i : static_cast<std::size_t>(order[i]);
    lines[first[stage]].push_back(static_cast<int>(stage));
  }
  std::vector<std::vector<int>> all;
  for (auto& [stage, line] : lines) all.push_back(std::move(line));
  return all;
}

std::shared_ptr<comm::ReplicaSync> make_sync(SyncRequest request) {
  if (request.stages.front().devices.size() == 1 && request.communicators == nullptr)
    return std::make_shared<comm::NoSync>();
  ddp::Network network;
  if (request.communicators != nullptr)
    network = network_of(*request.communicators, devices_of(request.stages), request.by_last_gradient);
  return std::make_shared<ddp::Reducer>(
      std::move(request.stages), ddp::ReducerOptions{request.bucket_bytes, request.record_times, request.sends_bf16},
      std::move(network));
}

}  // namespace sluice::engine
