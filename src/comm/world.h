// world: this process's rank and the address at which the run's processes meet, from options or the launcher's
// environment (launcher.h). With Slurm it is the job's first host and a port computed from the job's number. Open MPI's
// port on one machine is computed in the same way. Errors: ConfigError names the variable or option.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "comm/launcher.h"
#include "comm/socket_address.h"

namespace sluice::comm {

struct World {
  std::string launcher;  // display name; empty: no launcher
  std::string remark;    // a likely mistake in how this process was started; may be empty
  int rank = 0;
  int size = 1;
  int local_rank = -1;  // rank among the processes of this machine; selects a slice of its devices; -1: unknown
  int local_size = 0;   // number of processes on this machine; 0: unknown
  // This process's share of the cores, if others may run on the same ones. Set once connected; 0: unknown.
  double cores = 0;
  // Where rank 0 listens: host and port. Empty with one process, and until read from `meeting_file`.
  std::string address;
  int port = 0;
  AddressSettings address_settings = {};
  std::filesystem::path meeting_file;
  bool is_hosted = false;  // the launcher (torchrun's agent) listens there, for all attempts of a run
  int attempt = 0;         // how often the launcher has restarted the run
  std::string interface;   // network interface for tensors; empty: the one that leads to `address`
  // Whether a process is on another machine: by the launcher's count, else by boot id. Set once connected.
  bool spans_machines = false;

  [[nodiscard]] bool is_single() const { return size == 1; }
};

// Values from the command line. Absent ones come from the environment.
struct WorldOptions {
  std::optional<int> rank;
  std::optional<int> world_size;
  std::string init;  // tcp://HOST:PORT, file:///PATH, or env:// or empty for MASTER_ADDR and MASTER_PORT
  std::string interface;
};

// An address of this process's machine that the others can reach.
[[nodiscard]] std::string address_of_process(const World& world);

[[nodiscard]] World choose_world(const WorldOptions& options, const Environment& environment = process_environment,
                                 bool on_terminal = has_terminal());

}  // namespace sluice::comm
