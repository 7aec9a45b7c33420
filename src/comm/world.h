// world: which of a run's processes this is, and where they meet: read from a launcher's environment (launcher.h) or
// from options. Slurm does not say where to meet: that is then the first host of the job, on a port made of the job's
// number; so is Open MPI's port on one machine. Not here: connecting (processes.h).
// Errors: ConfigError names the variable or option.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "comm/launcher.h"

namespace sluice::comm {

struct World {
  std::string launcher;  // for people; empty: none
  std::string remark;    // what looks like a mistake in how this process was started; empty: nothing does
  int rank = 0;
  int size = 1;
  int local_rank = -1;  // among the processes of this machine; picks a slice of its devices; -1: not known
  int local_size = 0;   // processes of this machine; 0: not known
  // Cores that this process has to itself, where others of this machine may run on the same ones. Known once connected;
  // 0: not known.
  double cores = 0;
  // Where rank 0 listens: a host name or IP address, and the port. Empty when there is one process, and until rank 0
  // has written them into `meeting_file`, if there is one.
  std::string address;
  int port = 0;
  std::filesystem::path meeting_file;
  bool is_hosted = false;  // the launcher listens there (torchrun's agent), for all attempts of a run
  int attempt = 0;         // how often the launcher has restarted the run
  std::string interface;   // that carries tensors; empty: the one that leads to `address`
  // Whether some process is on another machine: as the launcher counts them, else by their boot. Known once connected.
  bool spans_machines = false;

  [[nodiscard]] bool is_single() const { return size == 1; }
};

// As given on the command line; what is absent comes from the environment.
struct WorldOptions {
  std::optional<int> rank;
  std::optional<int> world_size;
  std::string init;  // tcp://HOST:PORT, file:///PATH, or env:// or empty for MASTER_ADDR and MASTER_PORT
  std::string interface;
};

[[nodiscard]] World choose_world(const WorldOptions& options, const Environment& environment = process_environment,
                                 bool on_terminal = has_terminal());

}  // namespace sluice::comm
