// launcher: finds which launcher started the processes of a run, and the rank that it gave this one: torchrun, MPI
// (Open MPI, MPICH, Intel MPI, MVAPICH, Cray PALS), Slurm's srun, RANK and WORLD_SIZE, or command-line options. If
// launchers are nested (torchrun in the tasks of srun), the innermost one counts.
// Errors: ConfigError (contradicting launchers, an incomplete assignment, a number out of range).
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace sluice::comm {

using Environment = std::function<std::optional<std::string>(const std::string& name)>;
[[nodiscard]] std::optional<std::string> process_environment(const std::string& name);

// Prefixes of the variables by which launchers pass a process its rank. A prefix that ends with "=" is a whole name.
[[nodiscard]] std::span<const std::string_view> launcher_prefixes();

// Whether this process can reach a terminal, even if its input and output are redirected.
[[nodiscard]] bool has_terminal();

struct RankAssignment {
  std::string launcher;  // display name: "torchrun", "Slurm (srun)"; empty: no launcher, there is one process
  std::string rank_name;
  std::string size_name;
  int rank = 0;
  int size = 1;
  int local_rank = -1;  // rank among the processes of this machine; selects a slice of its devices; -1: unknown
  int local_size = 0;   // number of processes on this machine; 0: unknown
};

// of_options: the assignment of the command line, if it has one.
[[nodiscard]] RankAssignment rank_assignment(const Environment& environment, bool on_terminal,
                                             const std::optional<RankAssignment>& of_options = std::nullopt);

// Host and port at which the processes of Slurm or MPI meet if MASTER_ADDR and MASTER_PORT are not set.
[[nodiscard]] std::optional<std::string> launchers_host(const RankAssignment& assignment,
                                                        const Environment& environment);
[[nodiscard]] std::optional<std::string> launchers_port(const Environment& environment);

// Warning about tasks that the job has but that were not started. Empty if nothing looks like a mistake.
[[nodiscard]] std::string launch_remark(const RankAssignment& assignment, const Environment& environment);

constexpr int kLargestWorld = 65536;

// Parses `text`, the value of `what`. Throws ConfigError unless it is a number from `low` to `high`.
[[nodiscard]] int parse_number(const std::string& what, const std::string& text, int low, int high);

}  // namespace sluice::comm
