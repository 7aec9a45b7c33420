// worker: a worker process of a parameter server: gets samples and weights, runs the training step on its own plan and
// devices, and pushes the result. Threads: one, besides the connection's. Errors: those of the training step and of
// ps/net/network_link.h; it sends them to the server.
#pragma once

#include <filesystem>

#include <nlohmann/json.hpp>

#include "config/config.h"
#include "train/serve/server_role.h"
#include "train/setup/peers.h"
#include "train/trace/step_trace.h"

namespace sluice::train {

struct WorkerFiles {
  std::filesystem::path run_dir;  // for its own records (report/worker_writer.h); empty: none
  StepRange traced = {};          // by version of the weights
};

nlohmann::ordered_json run_worker(const config::Config& config, const ServerRole& role, const Launch& launch,
                                  const WorkerFiles& wanted);

}  // namespace sluice::train
