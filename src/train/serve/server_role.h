// server_role: a process's part in a run whose parameter server and workers are processes. ps.placement = "rank0": the
// first process of a launch is the server. "servers": `sluice serve` starts it. With several servers the first one
// leads, and the others only keep shards. Errors: ConfigError.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "comm/world.h"
#include "config/config.h"
#include "ps/net/frame_socket.h"

namespace sluice::train {

struct ServerRole {
  enum class Part { kNone, kServer, kShards, kWorker };
  Part part = Part::kNone;  // kNone: no such run
  std::string host;         // the lead server's
  int port = 0;
  std::vector<ps::ServerAddress> others;
  int server = 0;
  int worker = 0;
  bool is_by_address = false;  // given by ps.address, not by the launcher

  [[nodiscard]] ps::ServerAddress own() const;
  ps::Keys keys;
};

struct RoleAndConfig {
  ServerRole role;
  config::Config config;
};

void check_run_dir(const std::filesystem::path& run_dir);
// Call it first, so that a failure leaves no run directory behind. Binds the port and closes it.
void check_can_listen(const ServerRole& role);
// Returns a listening socket that the caller owns. It keeps the port from other processes.
[[nodiscard]] int listen_at_own_address(const ServerRole& role);

[[nodiscard]] std::vector<std::string> addresses_of(const ServerRole& role);

struct Serving {
  bool serves = false;
  int server = 0;
};

[[nodiscard]] RoleAndConfig assign_role(const config::Config& config, const comm::World& world, const Serving& serving);

}  // namespace sluice::train
