#include "train/server_place.h"

#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <fstream>

#include "comm/socket_address.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"

namespace sluice::train {
namespace {

constexpr int kLargestPort = 65535;
constexpr std::size_t kKeyLength = 40;

// "HOST:PORT"; an address of IPv6 in brackets.
void read_address(ServerPlace& place, const std::string& address) {
  const std::size_t colon = address.rfind(':');
  const std::string port = colon == std::string::npos ? "" : address.substr(colon + 1);
  place.host = address.substr(0, colon);
  if (place.host.starts_with('[') && place.host.ends_with(']'))
    place.host = place.host.substr(1, place.host.size() - 2);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), place.port);
  const bool is_port = error == std::errc{} && end == port.data() + port.size() && place.port > 0;
  if (place.host.empty() || !is_port || place.port > kLargestPort)
    throw ConfigError(concat("ps.address = \"", address, "\"; write HOST:PORT, for example 127.0.0.1:29600"));
}

// Torchrun's agent listens on the port that it gives; ours is the next one.
void find_server(ServerPlace& place, const config::Config& config, const comm::World& world) {
  if (!config.ps.address.empty()) return read_address(place, config.ps.address);
  if (world.address.empty())
    throw ConfigError("nothing says where the parameter server is; set ps.address to its HOST:PORT");
  place.host = world.address;
  place.port = world.is_hosted ? world.port + 1 : world.port;
}

std::string read_key(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string key;
  if (!in)
    throw ConfigError(concat("there is no key in ", file.string(), "; make keys with: sluice make-keys ",
                             file.parent_path().string()));
  if (!(in >> key) || key.size() != kKeyLength)
    throw ConfigError(concat(file.string(),
                             " is damaged; copy it again, or make new keys in another folder with "
                             "sluice make-keys"));
  return key;
}

void find_keys(ServerPlace& place, const config::Config& config) {
  if (!config.ps.keys.empty()) {
    const std::filesystem::path folder(config.ps.keys);
    place.keys.server_public = read_key(folder / "server.pub");
    if (place.part != ServerPlace::Part::kServer) return;
    const std::filesystem::path secret = folder / "server.key";
    place.keys.server_secret = read_key(secret);
    if (ps::public_key_of(place.keys.server_secret) != place.keys.server_public)
      throw ConfigError(concat("server.key and server.pub in ", folder.string(), " are not of one pair"));
    using std::filesystem::perms;
    const perms others = perms::group_all | perms::others_all;
    if ((std::filesystem::status(secret).permissions() & others) != perms::none)
      log_warning(concat("others may read ", secret.string(), "; take that from them: chmod 600 ", secret.string()));
    return;
  }
  const std::string address = comm::address_of(place.host);
  const bool is_own_machine = address.starts_with("127.") || address == "::1";
  if (place.part == ServerPlace::Part::kServer && !is_own_machine) {
    throw ConfigError(concat("without keys anybody who reaches ", place.host, ":", place.port,
                             " could change the weights, so a parameter server without keys listens on 127.0.0.1 only; "
                             "make keys with: sluice make-keys DIR, give all machines the same, and set ps.keys"));
  }
}

// What ps.placement says against `sluice serve`.
void check_serving(const config::Config& config, bool is_real) {
  if (!is_real) {
    throw ConfigError(
        "sluice serve needs replicas.sync = \"ps\" with ps.clock = \"real\"; set them, for example with "
        "--set replicas.sync=ps");
  }
  if (config.ps.placement == "rank0") {
    throw ConfigError(
        "sluice serve beside ps.placement = \"rank0\", where the first process of a launch is the server; "
        "set ps.placement = \"servers\"");
  }
}

// As one device does what the run asks for.
config::Config without_server(config::Config config) {
  log_info("one process: it trains by itself, without a parameter server");
  if (config.ps.time_limit_s > 0) log_warning("ps.time_limit_s has no effect on a process that trains by itself");
  config.train.global_batch = config::step_batch(config);
  config.replicas.sync = "none";
  config.ps = {};
  return config;
}

}  // namespace

void check_can_listen(const ServerPlace& place) {
  try {
    ::close(comm::listen_on(place.host, place.port));
  } catch (const ConfigError& error) {
    throw ConfigError(concat("a parameter server cannot listen at ", place.host, ":", place.port, ": ", error.what()));
  }
}

PlacedRun place_run(const config::Config& config, const comm::World& world, bool serves) {
  PlacedRun run{.config = config};
  const bool is_real = config.replicas.sync == "ps" && config.ps.clock == "real";
  if (serves) check_serving(config, is_real);
  if (!is_real) return run;
  const bool first_is_server = config.ps.placement == "rank0";
  if (first_is_server && world.is_single()) return {.config = without_server(config)};
  ServerPlace& place = run.place;
  const bool is_server = serves || (first_is_server && world.rank == 0);
  place.part = is_server ? ServerPlace::Part::kServer : ServerPlace::Part::kWorker;
  place.worker = first_is_server ? world.rank - 1 : world.rank;
  if (first_is_server) run.config.ps.workers = world.size - 1;
  find_server(place, config, world);
  find_keys(place, config);
  return run;
}

}  // namespace sluice::train
