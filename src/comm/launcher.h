// launcher: which launcher started the processes of a run, and the rank that it gave this one. Launchers are torchrun,
// those of MPI programs (Open MPI, MPICH, Intel MPI, MVAPICH, Cray PALS), Slurm's srun, RANK and WORLD_SIZE set by
// hand, and options. All but options are read from the environment. One may run inside another, for example torchrun in
// the tasks of srun: then the innermost counts. Not here: where the processes meet (world.h). Errors: ConfigError (two
// that contradict each other, half an assignment, a rank without a number of processes, a number that cannot be).
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace sluice::comm {

// The value of an environment variable.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
[[nodiscard]] std::optional<std::string> process_environment(const std::string& name);

// Beginnings of the variables by which launchers tell a process its rank; some end with "=": the whole name.
[[nodiscard]] std::span<const std::string_view> launcher_prefixes();

// Whether this process can reach a terminal, also if its input and output lead elsewhere.
[[nodiscard]] bool has_terminal();

// Which of how many processes this one is, as one launcher says.
struct RankAssignment {
  std::string launcher;   // for people: "torchrun", "Slurm (srun)"; empty: nobody says anything, there is one process
  std::string rank_name;  // the variable or option that says so
  std::string size_name;
  int rank = 0;
  int size = 1;
  int local_rank = -1;  // among the processes of this machine; picks a slice of its devices; -1: not known
  int local_size = 0;   // processes of this machine; 0: not known
};

// The assignment that counts. of_options: the command line's, if it has one.
[[nodiscard]] RankAssignment rank_assignment(const Environment& environment, bool on_terminal,
                                             const std::optional<RankAssignment>& of_options = std::nullopt);

// Where the processes of Slurm or MPI meet when MASTER_ADDR and MASTER_PORT do not say it; nothing when these launchers
// do not say it either.
[[nodiscard]] std::optional<std::string> launchers_host(const RankAssignment& assignment,
                                                        const Environment& environment);
[[nodiscard]] std::optional<std::string> launchers_port(const Environment& environment);

// What looks like a mistake: tasks that a job has and nobody has started. Empty: nothing does.
[[nodiscard]] std::string launch_remark(const RankAssignment& assignment, const Environment& environment);

constexpr int kLargestWorld = 65536;  // processes

// `text`, the value of `what`, as a number. Throws ConfigError when it is not one from `low` to `high`.
[[nodiscard]] int parse_number(const std::string& what, const std::string& text, int low, int high);

}  // namespace sluice::comm
