// shard_run: runs a process that only keeps shards (ps/net/shard_server.h). Its push log (ps.log) and log.txt are in
// its own locked folder. Threads: one. Errors: those of ps/net/shard_server.h; ConfigError if its log has no folder or
// a used one; the error that ended the run.
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
  std::string resume;  // from the command line; only the lead server resumes
};

[[nodiscard]] comm::Agreement agreement_of_servers(const config::Config& config, const std::string& version);

nlohmann::ordered_json run_shard_server(const config::Config& config, const ServerRole& role,
                                        const ShardRunOptions& options);

}  // namespace sluice::train
