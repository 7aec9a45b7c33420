#include "comm/world.h"

#include <string_view>

#include "core/concat.h"
#include "core/error.h"

namespace sluice::comm {
namespace {

constexpr std::string_view kTcp = "tcp://";
constexpr std::string_view kFile = "file://";

std::optional<RankAssignment> assignment_by_options(const WorldOptions& options) {
  if (options.rank.has_value() != options.world_size.has_value()) {
    throw ConfigError(
        concat(options.rank ? "--rank" : "--world-size", " needs ", options.rank ? "--world-size" : "--rank", " too"));
  }
  if (!options.rank) return std::nullopt;
  RankAssignment assignment{.launcher = "the command line", .rank_name = "--rank", .size_name = "--world-size"};
  assignment.size = parse_number(assignment.size_name, std::to_string(*options.world_size), 1, kLargestWorld);
  assignment.rank = parse_number(assignment.rank_name, std::to_string(*options.rank), 0, assignment.size - 1);
  return assignment;
}

AddressSettings address_settings_of(const RankAssignment& assignment, const WorldOptions& options) {
  AddressSettings settings{.number = assignment.rank_name};
  if (!options.init.empty() && options.init != "env://") settings.host = "--init", settings.port = "port in --init";
  return settings;
}

void meet_at(World& world, const std::string& host, const std::string& host_name, const std::string& port,
             const std::string& port_name) {
  if (host.empty()) throw ConfigError(host_name, " is empty; give the address of rank 0");
  world.address = host;
  world.port = parse_number(port_name, port, 1, kLargestPort);
}

void meet_at_url(World& world, const std::string& init) {
  const auto assignment = split_host_and_port(init.substr(kTcp.size()));
  if (!assignment) throw ConfigError("--init ", init, " has no port; write tcp://HOST:PORT");
  meet_at(world, assignment->host, "the host of --init", assignment->port, "the port of --init");
}

// Rank 0 then listens on loopback, unless an interface is named.
void meet_by_file(World& world, const std::string& init) {
  world.meeting_file = init.substr(kFile.size());
  if (!world.meeting_file.is_absolute())
    throw ConfigError("--init ", init, " is not an absolute path; write file:///FOLDER/NAME, with three slashes");
  const bool has_other_machines = world.local_size > 0 && world.local_size < world.size;
  if (has_other_machines && world.interface.empty()) {
    throw ConfigError("--init ", init, " names no network for ", world.size,
                      " processes on several machines; give --if-name NAME as well");
  }
}

void meet_at_launchers_address(World& world, const RankAssignment& assignment, const Environment& environment) {
  auto host = environment("MASTER_ADDR"), port = environment("MASTER_PORT");
  if (!host) host = launchers_host(assignment, environment);
  if (!port) port = launchers_port(environment);
  if (!host || !port) {
    throw ConfigError(
        concat("there are ", world.size, " processes, but ", host ? "MASTER_PORT" : "MASTER_ADDR",
               " is not set; set MASTER_ADDR and MASTER_PORT, or give --init tcp://HOST:PORT or file:///PATH"));
  }
  meet_at(world, *host, "MASTER_ADDR", *port, "MASTER_PORT");
  world.is_hosted = environment("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
  if (const auto attempt = environment("TORCHELASTIC_RESTART_COUNT"))
    world.attempt = parse_number("TORCHELASTIC_RESTART_COUNT", *attempt, 0, kLargestWorld);
}

}  // namespace

World choose_world(const WorldOptions& options, const Environment& environment, bool on_terminal) {
  const RankAssignment assignment = rank_assignment(environment, on_terminal, assignment_by_options(options));
  World world{.launcher = assignment.launcher,
              .remark = launch_remark(assignment, environment),
              .rank = assignment.rank,
              .size = assignment.size,
              .local_rank = assignment.local_rank,
              .local_size = assignment.local_size,
              .address_settings = address_settings_of(assignment, options),
              .interface = options.interface};
  if (world.is_single()) return world;
  if (options.init.starts_with(kTcp)) {
    meet_at_url(world, options.init);
  } else if (options.init.starts_with(kFile)) {
    meet_by_file(world, options.init);
  } else if (options.init.empty() || options.init == "env://") {
    meet_at_launchers_address(world, assignment, environment);
  } else {
    throw ConfigError("--init ", options.init, " is not supported; write tcp://HOST:PORT, file:///PATH or env://");
  }
  return world;
}

std::string address_of_process(const World& world) {
  if (world.rank == 0) return world.address;
  return world.interface.empty() ? address_towards(world.address) : address_of_interface(world.interface);
}

}  // namespace sluice::comm
