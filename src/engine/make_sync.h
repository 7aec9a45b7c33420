// make_sync: the ReplicaSync of a composition. Another one (a parameter server, one of a test) comes in through
// ComposeOptions::make_sync.
// Threads: one. Every process of a run makes the same. Errors: PeerError when another process is lost.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "comm/replica_sync.h"
#include "engine/communicators.h"

namespace sluice::engine {

struct SyncRequest {
  std::vector<comm::SyncedStage> stages;
  // Positions in `stages` in the order in which their gradients are complete; empty: the last stage's come first.
  std::vector<int> by_last_gradient = {};
  Communicators* communicators = nullptr;  // with the other processes of the run; null: there are none
  std::size_t bucket_bytes = std::size_t{25} << 20;
  bool record_times = false;  // of sums over the processes
  bool sends_bf16 = false;    // as ddp::ReducerOptions has it
};

// Makes those communicators that make_sync() will ask for and that some process does not have, for stages on these
// devices of replica 0. A process that fails before it comes to make_sync() leaves the others waiting there.
// ConfigError, in all processes, if stages share a GPU in one process that do not in another.
void connect_stages(Communicators& communicators, const std::vector<device::Device>& of_stages);

// Which stages share a communicator, each line in this order. Kernels of two NCCL communicators on one GPU may wait for
// each other for ever unless all processes start them in one order, so the stages of a GPU share one. Gloo's do not.
[[nodiscard]] std::vector<std::vector<int>> stages_by_line(const std::vector<device::Device>& of_stages,
                                                           const std::vector<int>& order);

using SyncFactory = std::function<std::shared_ptr<comm::ReplicaSync>(SyncRequest)>;

// All-reduce; where there is one replica in all, nothing.
[[nodiscard]] std::shared_ptr<comm::ReplicaSync> make_sync(SyncRequest request);

}  // namespace sluice::engine
