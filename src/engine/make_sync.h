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

// The communicator of all processes, on the CPU.
inline constexpr const char* kSmallSums = "small sums";

struct SyncRequest {
  std::vector<comm::SyncedStage> stages;
  Communicators* communicators = nullptr;  // with the other processes of the run; null: there are none
  std::size_t bucket_bytes = std::size_t{25} << 20;
  bool record_times = false;  // of sums over the processes
  bool sends_bf16 = false;    // as ddp::ReducerOptions has it
};

// Makes those communicators that make_sync() will ask for and that there are not yet, for stages on these devices of
// replica 0. A process that fails before it comes to make_sync() leaves the others waiting there.
void connect_stages(Communicators& communicators, const std::vector<device::Device>& of_stages);

using SyncFactory = std::function<std::shared_ptr<comm::ReplicaSync>(SyncRequest)>;

// All-reduce; where there is one replica in all, nothing.
[[nodiscard]] std::shared_ptr<comm::ReplicaSync> make_sync(SyncRequest request);

}  // namespace sluice::engine
