#include "comm/world.h"

#include <array>
#include <charconv>
#include <cstdlib>

#include "core/concat.h"
#include "core/error.h"

namespace sluice::comm {
namespace {

constexpr int kLargestWorld = 65536;
constexpr int kLargestPort = 65535;

// The names by which a launcher tells a process its place.
struct Launcher {
  const char* name;
  const char* rank;
  const char* size;
  const char* local_rank;
};
constexpr std::array kLaunchers{
    Launcher{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK"},
    Launcher{"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"},
    Launcher{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
};

int parse_number(const std::string& what, const std::string& text, int low, int high) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < low || value > high)
    throw ConfigError(concat(what, " = '", text, "' is not a number from ", low, " to ", high));
  return value;
}

// The launcher's rank, size and local rank; a world of one where there is no launcher.
World of_launcher(const Environment& environment) {
  for (const Launcher& launcher : kLaunchers) {
    const auto rank = environment(launcher.rank), size = environment(launcher.size);
    if (!rank && !size) continue;
    if (!rank || !size) {
      // Slurm sets its number of tasks in an allocation's shell too, where nothing was launched.
      if (launcher.name != kLaunchers.front().name) continue;
      throw ConfigError(concat(rank ? launcher.rank : launcher.size, " is set, but ",
                               rank ? launcher.size : launcher.rank, " is not; set both or neither"));
    }
    World world;
    world.size = parse_number(launcher.size, *size, 1, kLargestWorld);
    world.rank = parse_number(launcher.rank, *rank, 0, world.size - 1);
    if (const auto local = environment(launcher.local_rank))
      world.local_rank = parse_number(launcher.local_rank, *local, 0, world.size - 1);
    return world;
  }
  return {};
}

void meet_at(World& world, const std::string& host, const std::string& host_name, const std::string& port,
             const std::string& port_name) {
  if (host.empty()) throw ConfigError(concat(host_name, " is empty; give the address of rank 0"));
  world.address = host;
  world.port = parse_number(port_name, port, 1, kLargestPort);
}

void choose_meeting_place(World& world, const std::string& init, const Environment& environment) {
  constexpr std::string_view kTcp = "tcp://";
  if (init.starts_with(kTcp)) {
    const std::string place = init.substr(kTcp.size());
    const std::size_t colon = place.rfind(':');
    if (colon == std::string::npos) throw ConfigError(concat("--init ", init, " has no port; write tcp://HOST:PORT"));
    std::string host = place.substr(0, colon);
    if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);  // tcp://[::1]:29500
    meet_at(world, host, "the host of --init", place.substr(colon + 1), "the port of --init");
    return;
  }
  if (!init.empty() && init != "env://")
    throw ConfigError(concat("--init ", init, "; write tcp://HOST:PORT or env://"));
  const auto host = environment("MASTER_ADDR"), port = environment("MASTER_PORT");
  if (!host || !port) {
    throw ConfigError(concat("there are ", world.size, " processes, but ", host ? "MASTER_PORT" : "MASTER_ADDR",
                             " is not set; set MASTER_ADDR and MASTER_PORT, or give --init tcp://HOST:PORT"));
  }
  meet_at(world, *host, "MASTER_ADDR", *port, "MASTER_PORT");
}

}  // namespace

std::optional<std::string> process_environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
}

World choose_world(const WorldOptions& options, const Environment& environment) {
  if (options.rank.has_value() != options.world_size.has_value()) {
    throw ConfigError(
        concat(options.rank ? "--rank" : "--world-size", " needs ", options.rank ? "--world-size" : "--rank", " too"));
  }
  World world;
  if (options.rank) {
    world.size = parse_number("--world-size", std::to_string(*options.world_size), 1, kLargestWorld);
    world.rank = parse_number("--rank", std::to_string(*options.rank), 0, world.size - 1);
    if (const auto local = environment("LOCAL_RANK"))
      world.local_rank = parse_number("LOCAL_RANK", *local, 0, world.size - 1);
  } else {
    world = of_launcher(environment);
  }
  world.interface = options.interface;
  if (!world.is_single()) choose_meeting_place(world, options.init, environment);
  return world;
}

}  // namespace sluice::comm
