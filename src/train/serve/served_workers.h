// served_workers: a run on a parameter server with workers in other processes (ps/net). The server has its own thread
// (server_thread.h); the loop takes its updates one by one. Threads: one, besides the server's. Errors: those of
// ps/net/network_server.h, push_log.h and log_recovery.h.
#pragma once

#include <filesystem>
#include <memory>

#include "train/serve/server_role.h"
#include "train/serve/update_source.h"
#include "train/setup/run_state.h"
#include "train/setup/setup.h"

namespace sluice::train {

[[nodiscard]] comm::Agreement served_agreement(const Setup& setup, const std::string& version);

struct PushFolder {
  std::filesystem::path path;
  bool takes_pushes = false;  // replay existing pushes; false: they are another run's, or later than the checkpoint
};

// saved: the checkpoint's state; null for a new run. Requires: `setup` outlives it. Errors: CheckpointError.
[[nodiscard]] std::unique_ptr<UpdateSource> make_served_workers(const Setup& setup, const ServerRole& role,
                                                                const std::string& version, const PushFolder& pushes,
                                                                const RunState* saved);

}  // namespace sluice::train
