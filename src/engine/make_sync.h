// make_sync: the default ReplicaSync of a composition. ComposeOptions::make_sync replaces it.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "comm/replica_sync.h"
#include "engine/communicators.h"

namespace sluice::engine {

struct SyncRequest {
  std::vector<comm::SyncedStage> stages;
  // Positions in `stages` in the order in which their gradients are complete; empty: last stage first.
  std::vector<int> by_last_gradient = {};
  Communicators* communicators = nullptr;  // with the other processes of the run; null: no other processes
  std::size_t bucket_bytes = std::size_t{25} << 20;
  bool record_times = false;  // of sums over the processes
  bool sends_bf16 = false;    // as in ddp::ReducerOptions
};

// Makes the communicators for stages on these devices of replica 0 in all processes, so that a process that fails
// before make_sync() leaves none waiting. ConfigError in all if stages share a GPU in one process but not in another.
void connect_stages(Communicators& communicators, const std::vector<device::Device>& of_stages);

// Groups of stages that share a communicator: the stages of a GPU. Kernels of two NCCL communicators on one GPU may
// deadlock unless all processes start them in one order.
[[nodiscard]] std::vector<std::vector<int>> stages_by_line(const std::vector<device::Device>& of_stages,
                                                           const std::vector<int>& order);

using SyncFactory = std::function<std::shared_ptr<comm::ReplicaSync>(SyncRequest)>;

[[nodiscard]] std::shared_ptr<comm::ReplicaSync> make_sync(SyncRequest request);

}  // namespace sluice::engine
