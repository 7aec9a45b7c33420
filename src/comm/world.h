// world: which of a run's processes this is, and where they meet: read from a launcher's environment (torchrun, Slurm,
// Open MPI) or from options. Slurm does not say where to meet: that is then the first host of the job, on a port made
// of the job's number. Not here: connecting (processes.h).
// Errors: ConfigError names the variable or option.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace sluice::comm {

struct World {
  int rank = 0;
  int size = 1;
  int local_rank = -1;     // among the processes of this machine; picks a slice of its devices; -1: not known
  int local_size = 0;      // processes of this machine; 0: not known
  std::string address;     // of rank 0: a host name or IP address; empty when there is one process
  int port = 0;            // on which rank 0 listens
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
  std::string init;  // tcp://HOST:PORT, or env:// or empty for MASTER_ADDR and MASTER_PORT
  std::string interface;
};

// The value of an environment variable.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
[[nodiscard]] std::optional<std::string> process_environment(const std::string& name);

[[nodiscard]] World choose_world(const WorldOptions& options, const Environment& environment = process_environment);

}  // namespace sluice::comm
