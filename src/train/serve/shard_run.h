// shard_run: a server that keeps some of the shards, as a process (ps/net/shard_server.h): no model, no data, no
// records of its own; what it must not forget (ps.log) and its log.txt are in its folder of the run directory, which no
// other process may use meanwhile. Threads: one. Errors: those of ps/net/shard_server.h; ConfigError where its log has
// no place, or that is in use; how the run has ended, where that is with an error.
#pragma once

#include <filesystem>
#include <string>

#include <nlohmann/json.hpp>

#include "config/config.h"
#include "train/serve/server_role.h"
#include "train/setup/peers.h"

namespace sluice::train {

struct ShardRunOptions {
  const Launch& launch;
  std::filesystem::path run_dir;
  std::string resume;  // as the command line has it: what the run goes on from is for the lead server to say
};

// What all servers of a run must have the same.
[[nodiscard]] comm::Agreement agreement_of_servers(const config::Config& config, const std::string& version);

// Returns when the run is over: what this server has done.
nlohmann::ordered_json run_shard_server(const config::Config& config, const ServerRole& role,
                                        const ShardRunOptions& options);

}  // namespace sluice::train
