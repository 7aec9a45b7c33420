// server_role: which part a process has in a run whose parameter server and workers are processes: by ps.placement and
// how it was started. With "rank0" the first process of a launch is the server and the others are its workers; with
// "servers" the server was started by `sluice serve`, and all processes of a launch are workers. Where there are
// several servers (ps.servers) the first one decides, and the others keep shards only (ps/net/shard_server.h).
// Role and addresses are values. assign_role() reads keys, and tells the log of keys that others may read and of a
// process that trains by itself; check_can_listen() binds the port and closes it, listen_at_own_address() keeps it.
// Errors: ConfigError.
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
  Part part = Part::kNone;  // kNone: there is no such run
  std::string host;         // of the lead server
  int port = 0;
  std::vector<ps::ServerAddress> others;  // the servers that keep shards only
  int server = 0;                         // this one's number, as a server
  int worker = 0;                         // likewise, as a worker
  bool is_by_address = false;             // ps.address says where they are, not where the launch meets

  // Where this server listens.
  [[nodiscard]] ps::ServerAddress own() const;
  ps::Keys keys;
};

struct RoleAndConfig {
  ServerRole role;
  config::Config config;  // as this part runs it
};

// Of a process that makes no run of its own there: ConfigError where it is a file.
void check_run_dir(const std::filesystem::path& run_dir);
// That a server can listen there: before anything else is done, and so that no run directory is left behind.
void check_can_listen(const ServerRole& role);
// A socket that does, which the caller owns: nobody else can from then on.
[[nodiscard]] int listen_at_own_address(const ServerRole& role);

// HOST:PORT of each server, in their order; none where there is no such run.
[[nodiscard]] std::vector<std::string> addresses_of(const ServerRole& role);

// How `sluice serve` was started.
struct Serving {
  bool serves = false;
  int server = 0;  // --server
};

[[nodiscard]] RoleAndConfig assign_role(const config::Config& config, const comm::World& world, const Serving& serving);

}  // namespace sluice::train
