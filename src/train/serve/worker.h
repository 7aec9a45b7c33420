// worker: a worker of a parameter server as a process: it is given samples and weights, runs the one training step on
// its own pipeline, and pushes what came of it, until the run is over. It has its own plan and devices; evaluation,
// checkpoints and the run's records are the server's.
// Threads: one, besides the connection's. Errors: those of the training step and of ps/net/network_link.h; the server
// is told of them.
#pragma once

#include <filesystem>

#include <nlohmann/json.hpp>

#include "config/config.h"
#include "train/serve/server_role.h"
#include "train/setup/peers.h"
#include "train/trace/step_trace.h"

namespace sluice::train {

struct WorkerFiles {
  std::filesystem::path run_dir;  // records of its own (report/worker_writer.h); empty: none
  StepRange traced = {};          // by the versions of the weights that it computed from
};

// Returns when the run is over: what this worker has done.
nlohmann::ordered_json run_worker(const config::Config& config, const ServerRole& role, const Launch& launch,
                                  const WorkerFiles& wanted);

}  // namespace sluice::train
