#include "train/serve/server_role.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <fstream>

#include "comm/socket_address.h"
#include "config/addresses.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"

namespace sluice::train {
namespace {

constexpr std::size_t kKeyLength = 40;

// "HOST:PORT"; an IPv6 address is in brackets.
ps::ServerAddress read_address(const std::string& address) {
  const auto [host, port] = comm::split_host_and_port(address).value_or(comm::HostAndPort{});
  ps::ServerAddress at{.host = host};
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), at.port);
  const bool is_port = error == std::errc{} && end == port.data() + port.size() && at.port > 0;
  if (at.host.empty() || !is_port || at.port > comm::kLargestPort)
    throw ConfigError("ps.address = \"", address, "\"; write HOST:PORT, for example 127.0.0.1:29600");
  return at;
}

// Torchrun's agent listens on the port that it passes; the server uses the next one.
std::vector<ps::ServerAddress> addresses_given(const config::Config& config, const comm::World& world) {
  std::vector<ps::ServerAddress> given;
  for (const std::string& address : config::addresses_in(config.ps.address)) given.push_back(read_address(address));
  if (!given.empty()) return given;
  if (world.address.empty())
    throw ConfigError("the address of the parameter server is unknown; set ps.address to its HOST:PORT");
  return {{world.address, world.is_hosted ? world.port + 1 : world.port}};
}

void find_servers(ServerRole& role, const config::Config& config, const comm::World& world) {
  std::vector<ps::ServerAddress> servers = addresses_given(config, world);
  const auto count = static_cast<std::size_t>(config.ps.servers);
  if (servers.size() != 1 && servers.size() != count)
    throw ConfigError("ps.address has ", servers.size(), " addresses, but ps.servers = ", count,
                      "; give one for each server, or only the first");
  while (servers.size() < count) {
    const int port = servers.back().port + 1;
    if (port > comm::kLargestPort)
      throw ConfigError("the port of server ", servers.size(), " would exceed ", comm::kLargestPort,
                        "; give all addresses in ps.address");
    servers.push_back({servers.front().host, port});
  }
  role.is_by_address = !config.ps.address.empty();
  role.host = servers.front().host;
  role.port = servers.front().port;
  role.others.assign(servers.begin() + 1, servers.end());
}

std::string read_key(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string key;
  if (!in)
    throw ConfigError("cannot read the key ", file.string(), "; create keys with: sluice make-keys ",
                      file.parent_path().string());
  if (!(in >> key) || key.size() != kKeyLength)
    throw ConfigError(file.string(),
                      " is damaged; copy it again, or create new keys with sluice make-keys in another folder");
  return key;
}

comm::AddressSettings address_settings(const ServerRole& role) {
  comm::AddressSettings settings{.who = concat("server ", role.server)};
  if (role.is_by_address) settings = {settings.who, "ps.address", "port in ps.address", "which server this is"};
  return settings;
}

// own_addresses: of the host where a server listens; empty in a worker.
void find_keys(ServerRole& role, const config::Config& config, const std::vector<std::string>& own_addresses) {
  if (!config.ps.keys.empty()) {
    const std::filesystem::path folder(config.ps.keys);
    role.keys.server_public = read_key(folder / "server.pub");
    if (role.part == ServerRole::Part::kWorker) return;
    const std::filesystem::path secret = folder / "server.key";
    std::error_code ignored;
    if (!std::filesystem::exists(secret, ignored))
      throw ConfigError("there is no server.key in ", folder.string(),
                        ", only server.pub; copy server.key from the folder where the keys were created");
    role.keys.server_secret = read_key(secret);
    if (ps::public_key_of(role.keys.server_secret) != role.keys.server_public)
      throw ConfigError("server.key and server.pub in ", folder.string(),
                        " do not belong together; copy both files again");
    using std::filesystem::perms;
    const perms others = perms::group_all | perms::others_all;
    if ((std::filesystem::status(secret).permissions() & others) != perms::none)
      log_warning(secret.string(), " is readable by other users; run: chmod 600 ", secret.string());
    return;
  }
  if (role.part == ServerRole::Part::kWorker) return;
  const auto [host, port] = role.own();
  if (!std::ranges::all_of(own_addresses, comm::is_loopback)) {
    throw ConfigError("a parameter server at ", host, ":", port,
                      " needs keys, because any program that reaches it could change the weights; create keys with: "
                      "sluice make-keys DIR, copy them to all machines, and set ps.keys");
  }
}

void check_serving(const config::Config& config, const Serving& serving, bool is_real) {
  if (!is_real) {
    throw ConfigError(
        "sluice serve needs replicas.sync = \"ps\" with ps.clock = \"real\"; set them, for example with "
        "--set replicas.sync=ps");
  }
  if (config.ps.placement == "rank0") {
    throw ConfigError(
        "sluice serve cannot run with ps.placement = \"rank0\", which makes the first process of a launch the server; "
        "set ps.placement = \"servers\"");
  }
  const int last = config.ps.servers - 1;
  if (serving.server < 0 || serving.server > last)
    throw ConfigError("--server ", serving.server, " does not exist: ps.servers = ", config.ps.servers, ", so use 0",
                      last == 0 ? "" : concat(last == 1 ? " or " : " to ", last),
                      ", or set the same ps.servers in all processes");
}

config::Config without_server(config::Config config) {
  log_info("there is only one process; training without a parameter server");
  if (config.ps.time_limit_s > 0) log_warning("ps.time_limit_s has no effect without a parameter server");
  config.train.global_batch = config::step_batch(config);
  config.replicas.sync = "none";
  config.ps = {};
  return config;
}

}  // namespace

ps::ServerAddress ServerRole::own() const {
  return server == 0 ? ps::ServerAddress{host, port} : others.at(static_cast<std::size_t>(server - 1));
}

void check_run_dir(const std::filesystem::path& run_dir) {
  std::error_code ignored;
  if (!run_dir.empty() && std::filesystem::exists(run_dir, ignored) && !std::filesystem::is_directory(run_dir, ignored))
    throw ConfigError("run directory ", run_dir.string(), " is a file; choose another --run-dir");
}

void check_can_listen(const ServerRole& role) { ::close(listen_at_own_address(role)); }

int listen_at_own_address(const ServerRole& role) {
  const auto [host, port] = role.own();
  try {
    return comm::listen_on(host, port, address_settings(role));
  } catch (const ConfigError& error) {
    throw ConfigError("a parameter server cannot listen at ", host, ":", port, ": ", error.what());
  }
}

std::vector<std::string> addresses_of(const ServerRole& role) {
  if (role.part == ServerRole::Part::kNone) return {};
  std::vector<std::string> addresses{concat(role.host, ":", role.port)};
  for (const auto& [host, port] : role.others) addresses.push_back(concat(host, ":", port));
  return addresses;
}

namespace {

// by_rank: the first processes of the launch are the servers.
void find_part(ServerRole& role, const Serving& serving, const comm::World& world, int servers, bool by_rank) {
  using Part = ServerRole::Part;
  const bool is_server = serving.serves || (by_rank && world.rank < servers);
  if (!is_server) {
    role.part = Part::kWorker;
    role.worker = by_rank ? world.rank - servers : world.rank;
    return;
  }
  role.server = serving.serves ? serving.server : world.rank;
  role.part = role.server == 0 ? Part::kServer : Part::kShards;
}

}  // namespace

RoleAndConfig assign_role(const config::Config& config, const comm::World& world, const Serving& serving) {
  RoleAndConfig run{.config = config};
  const bool is_real = config.replicas.has_server() && config.ps.clock == "real";
  if (serving.serves) check_serving(config, serving, is_real);
  if (!is_real) return run;
  const bool by_rank = config.ps.placement == "rank0";
  const int servers = config.ps.servers;
  if (by_rank && world.is_single()) return {.config = without_server(config)};
  if (by_rank && world.size <= servers)
    throw ConfigError("a launch of ", world.size, " processes has no workers, because ps.servers = ", servers,
                      "; start more processes");
  if (by_rank) run.config.ps.workers = world.size - servers;
  find_part(run.role, serving, world, servers, by_rank);
  find_servers(run.role, config, world);
  std::vector<std::string> own_addresses;
  if (run.role.part != ServerRole::Part::kWorker) {
    const auto limit = std::chrono::duration<double>(config.replicas.connect_timeout_s);
    own_addresses = comm::addresses_of(run.role.own().host, std::chrono::ceil<std::chrono::milliseconds>(limit),
                                       address_settings(run.role).host);
  }
  find_keys(run.role, config, own_addresses);
  return run;
}

}  // namespace sluice::train
