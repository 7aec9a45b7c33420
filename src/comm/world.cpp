#include "comm/world.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <limits>

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
  const char* local_size;
};
constexpr Launcher kTorchrun{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr Launcher kSlurm{"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"};
constexpr Launcher kOpenMpi{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                            "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr std::array kLaunchers{kTorchrun, kSlurm, kOpenMpi};

constexpr int kFirstSlurmPort = 15000;
constexpr int kSlurmPorts = 10000;

int parse_number(const std::string& what, const std::string& text, int low, int high) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < low || value > high)
    throw ConfigError(concat(what, " = '", text, "' is not a number from ", low, " to ", high));
  return value;
}

// Where this process stands on its machine, as far as the launcher says.
void read_local_place(World& world, const Launcher& launcher, const Environment& environment) {
  if (const auto size = environment(launcher.local_size)) {
    // Slurm's is the job's, and a step may be smaller.
    const int most = launcher.name == kSlurm.name ? kLargestWorld : world.size;
    world.local_size = std::min(parse_number(launcher.local_size, *size, 1, most), world.size);
  }
  if (const auto rank = environment(launcher.local_rank)) {
    const int last = (world.local_size > 0 ? world.local_size : world.size) - 1;
    world.local_rank = parse_number(launcher.local_rank, *rank, 0, last);
  }
}

// The launcher's rank, size and local rank; a world of one where there is no launcher.
World of_launcher(const Environment& environment) {
  for (const Launcher& launcher : kLaunchers) {
    const auto rank = environment(launcher.rank), size = environment(launcher.size);
    if (!rank && !size) continue;
    if (!rank || !size) {
      // Slurm sets its number of tasks in an allocation's shell too, where nothing was launched.
      if (launcher.name != kTorchrun.name) continue;
      throw ConfigError(concat(rank ? launcher.rank : launcher.size, " is set, but ",
                               rank ? launcher.size : launcher.rank, " is not; set both or neither"));
    }
    World world;
    world.size = parse_number(launcher.size, *size, 1, kLargestWorld);
    world.rank = parse_number(launcher.rank, *rank, 0, world.size - 1);
    read_local_place(world, launcher, environment);
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

// "node7" of "node[7-9,12],other" and of "node7,other".
std::optional<std::string> first_slurm_host(const Environment& environment) {
  const auto list = environment("SLURM_JOB_NODELIST");
  if (!list || list->empty()) return std::nullopt;
  const std::size_t end = list->find_first_of("[,");
  std::string host = list->substr(0, end);
  if (end == std::string::npos || (*list)[end] == ',') return host;
  const std::size_t end_of_number = list->find_first_of("-,]", end);
  if (end_of_number == std::string::npos) return std::nullopt;
  return host + list->substr(end + 1, end_of_number - end - 1);
}

std::optional<std::string> slurm_port(const Environment& environment) {
  const auto job = environment("SLURM_JOB_ID");
  if (!job) return std::nullopt;
  const int number = parse_number("SLURM_JOB_ID", *job, 0, std::numeric_limits<int>::max());
  return std::to_string(kFirstSlurmPort + number % kSlurmPorts);
}

constexpr std::string_view kTcp = "tcp://";

void meet_at_url(World& world, const std::string& init) {
  const std::string place = init.substr(kTcp.size());
  const std::size_t colon = place.rfind(':');
  if (colon == std::string::npos) throw ConfigError(concat("--init ", init, " has no port; write tcp://HOST:PORT"));
  std::string host = place.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);  // tcp://[::1]:29500
  meet_at(world, host, "the host of --init", place.substr(colon + 1), "the port of --init");
}

void meet_where_launcher_says(World& world, const Environment& environment) {
  auto host = environment("MASTER_ADDR"), port = environment("MASTER_PORT");
  if (!host) host = first_slurm_host(environment);
  if (!port) port = slurm_port(environment);
  if (!host || !port) {
    throw ConfigError(concat("there are ", world.size, " processes, but ", host ? "MASTER_PORT" : "MASTER_ADDR",
                             " is not set; set MASTER_ADDR and MASTER_PORT, or give --init tcp://HOST:PORT"));
  }
  meet_at(world, *host, "MASTER_ADDR", *port, "MASTER_PORT");
  world.is_hosted = environment("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
  if (const auto attempt = environment("TORCHELASTIC_RESTART_COUNT"))
    world.attempt = parse_number("TORCHELASTIC_RESTART_COUNT", *attempt, 0, kLargestWorld);
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
    read_local_place(world, kTorchrun, environment);
  } else {
    world = of_launcher(environment);
  }
  world.interface = options.interface;
  if (world.is_single()) return world;
  const bool is_url = options.init.starts_with(kTcp);
  if (!is_url && !options.init.empty() && options.init != "env://")
    throw ConfigError(concat("--init ", options.init, "; write tcp://HOST:PORT or env://"));
  is_url ? meet_at_url(world, options.init) : meet_where_launcher_says(world, environment);
  return world;
}

}  // namespace sluice::comm
