// served_workers: a run on a parameter server whose workers are other processes (ps/net): how the server
// begins, goes on and ends. It runs in a thread of its own (server_thread.h); the loop takes the updates that it has
// made, one by one, and has the engine hold their weights where it needs them. Threads: one, besides the server's.
// Errors: those of ps/net/network_server.h, push_log.h and log_recovery.h.
#pragma once

#include <filesystem>
#include <memory>

#include "train/serve/server_role.h"
#include "train/serve/update_source.h"
#include "train/setup/run_state.h"
#include "train/setup/setup.h"

namespace sluice::train {

// What every process of such a run must have the same: configuration, version and training data.
[[nodiscard]] comm::Agreement served_agreement(const Setup& setup, const std::string& version);

// Where the pushes are kept that a server has committed (ps.log).
struct PushFolder {
  std::filesystem::path path;
  bool takes_pushes = false;  // that are there; else they are another run's, or left by going back to a checkpoint
};

// saved: of the checkpoint that the run goes on from; null: it begins. `setup` outlives it. CheckpointError.
[[nodiscard]] std::unique_ptr<UpdateSource> make_served_workers(const Setup& setup, const ServerRole& role,
                                                                const std::string& version, const PushFolder& pushes,
                                                                const RunState* saved);

}  // namespace sluice::train
