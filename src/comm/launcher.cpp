#include "comm/launcher.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string_view>
#include <vector>

#include "core/concat.h"
#include "core/error.h"

namespace sluice::comm {
namespace {

constexpr int kLargestNumber = std::numeric_limits<int>::max();

// Range of ports on which rank 0 listens if only a job's number is known.
constexpr int kFirstJobPort = 15000;
constexpr int kJobPorts = 10000;
constexpr int kPortsBetweenSteps = 101;  // keeps the steps of a job away from the ports of the jobs after it

struct Names {
  const char* launcher;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
};
constexpr Names kTorchrun{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr Names kVariables{"RANK and WORLD_SIZE", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr Names kSlurm{"Slurm (srun)", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", nullptr};
// MPI launchers, the most specific first. PALS and MVAPICH's mpiexec set the variables of Hydra, too.
constexpr std::array kMpi{
    Names{"Open MPI (mpirun)", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
          "OMPI_COMM_WORLD_LOCAL_SIZE"},
    Names{"MVAPICH (mpirun_rsh)", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK",
          "MV2_COMM_WORLD_LOCAL_SIZE"},
    Names{"PALS (mpiexec)", "PALS_RANKID", "PMI_SIZE", "PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE"},
    Names{"Hydra (mpiexec of MPICH or Intel MPI)", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"}};
constexpr const Names& kOpenMpi = kMpi[0];
constexpr const Names& kMvapich = kMpi[1];
// Prefixes of the variables above, and of other variables that programs of these launchers read.
constexpr std::array<std::string_view, 12> kPrefixes{"RANK=",         "WORLD_SIZE=", "LOCAL_",    "MASTER_",
                                                     "TORCHELASTIC_", "OMPI_",       "MV2_",      "PALS_",
                                                     "PMI_",          "PMIX_",       "MPI_LOCAL", "SLURM_"};
constexpr const char* kPmixRank = "PMIX_RANK";

bool is_torchrun(const Environment& environment) { return environment("TORCHELASTIC_RUN_ID").has_value(); }

// A batch script and mpirun's processes in it also have SLURM_PROCID. Only srun's tasks have a step.
bool is_step_of_slurm(const Environment& environment) {
  return environment("SLURM_STEP_ID").has_value() && environment("SLURM_PROCID").has_value();
}

// `srun --pty` gives its first task a terminal. The children of such a shell are no tasks, but have the task's
// variables. The tasks of a nested srun also inherit SLURM_PTY_PORT, but have no terminal.
bool is_in_interactive_step(const Environment& environment, bool on_terminal) {
  const bool is_the_task = environment("SLURM_TASK_PID") == std::to_string(::getpid());
  return is_step_of_slurm(environment) && environment("SLURM_PTY_PORT").has_value() && on_terminal && !is_the_task;
}

RankAssignment assignment_of(const Names& names, const std::string& rank, const std::string& size) {
  RankAssignment assignment{.launcher = names.launcher, .rank_name = names.rank, .size_name = names.size};
  assignment.size = parse_number(names.size, size, 1, kLargestWorld);
  assignment.rank = parse_number(names.rank, rank, 0, assignment.size - 1);
  return assignment;
}

void read_local_rank(RankAssignment& assignment, const char* name, const Environment& environment) {
  const auto rank = environment(name);
  const int last = (assignment.local_size > 0 ? assignment.local_size : assignment.size) - 1;
  if (rank) assignment.local_rank = parse_number(name, *rank, 0, last);
}

void read_local_part(RankAssignment& assignment, const Names& names, const Environment& environment) {
  if (const auto size = environment(names.local_size))
    assignment.local_size = parse_number(names.local_size, *size, 1, assignment.size);
  read_local_rank(assignment, names.local_rank, environment);
}

std::optional<RankAssignment> assignment_by_variables(const Names& names, const Environment& environment) {
  const auto rank = environment(names.rank), size = environment(names.size);
  if (!rank || !size) return std::nullopt;
  RankAssignment assignment = assignment_of(names, *rank, *size);
  read_local_part(assignment, names, environment);
  return assignment;
}

void refuse_half(const Names& names, const Environment& environment) {
  const bool has_rank = environment(names.rank).has_value();
  if (has_rank == environment(names.size).has_value()) return;
  throw ConfigError(has_rank ? names.rank : names.size, " is set, but ", has_rank ? names.size : names.rank,
                    " is not; set both or neither");
}

// Parses the tasks per node of a step: "2(x3),1" means 2, 2, 2, 1. Returns that of `node`; nothing for other text.
std::optional<int> tasks_of_node(std::string_view list, int node) {
  while (!list.empty()) {
    const std::string_view item = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), item.size() + 1));
    int tasks = 0, nodes = 1;
    const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), tasks);
    if (error != std::errc{} || tasks < 1) return std::nullopt;
    const std::string_view rest(end, item.size() - static_cast<std::size_t>(end - item.data()));
    if (rest.starts_with("(x")) std::from_chars(rest.data() + 2, rest.data() + rest.size(), nodes);
    if (node < nodes) return tasks;
    node -= nodes;
  }
  return std::nullopt;
}

std::optional<RankAssignment> assignment_by_slurm(const Environment& environment) {
  if (!is_step_of_slurm(environment)) return std::nullopt;
  auto size = environment(kSlurm.size);
  if (!size) size = environment("SLURM_NTASKS");
  if (!size) return std::nullopt;
  RankAssignment assignment = assignment_of(kSlurm, *environment(kSlurm.rank), *size);
  const auto tasks = environment("SLURM_STEP_TASKS_PER_NODE"), node = environment("SLURM_NODEID");
  if (tasks && node) {
    const auto here = tasks_of_node(*tasks, parse_number("SLURM_NODEID", *node, 0, kLargestWorld));
    if (here) assignment.local_size = std::min(*here, assignment.size);
  }
  read_local_rank(assignment, kSlurm.local_rank, environment);
  return assignment;
}

// srun also passes its ranks to the PMI library (--mpi=pmi2). An mpiexec inside a task sets MPI_LOCALNRANKS.
bool is_slurms_own(const RankAssignment& mpi, const RankAssignment& task, const Environment& environment) {
  return mpi.rank == task.rank && mpi.size == task.size && !environment("MPI_LOCALNRANKS");
}

// Open MPI's daemons may be tasks of another launcher. MVAPICH's mpirun_rsh sets PMI_ID, but no PMI_RANK: one that is
// there belongs to an outer launcher.
bool counts_alone(const Names& names, const Environment& environment) {
  return &names == &kOpenMpi || (&names == &kMvapich && environment("PMI_ID"));
}

// Several assignments must agree.
std::vector<RankAssignment> assignments_by_mpi(const Environment& environment,
                                               const std::optional<RankAssignment>& task) {
  std::vector<RankAssignment> found;
  for (const Names& names : kMpi) {
    const auto assignment = assignment_by_variables(names, environment);
    const bool is_of_pmi = &names != &kOpenMpi && &names != &kMvapich;
    if (!assignment || (task && is_of_pmi && is_slurms_own(*assignment, *task, environment))) continue;
    found.push_back(*assignment);
    if (counts_alone(names, environment)) break;
  }
  return found;
}

// Assignments of launchers that are not nested, the innermost first. Other launchers start torchrun, and mpirun's
// daemons are tasks of Slurm, so their children inherit the variables of outer launchers, which are left out.
std::vector<RankAssignment> assignments_in(const Environment& environment, bool on_terminal) {
  std::vector<RankAssignment> found;
  const bool by_torchrun = is_torchrun(environment);
  const Names& variables = by_torchrun ? kTorchrun : kVariables;
  refuse_half(variables, environment);
  if (const auto assignment = assignment_by_variables(variables, environment)) {
    found.push_back(*assignment);
    if (by_torchrun) return found;
  }
  const auto task = assignment_by_slurm(environment);
  const auto mpi = assignments_by_mpi(environment, task);
  found.insert(found.end(), mpi.begin(), mpi.end());
  if (mpi.empty() && task && !is_in_interactive_step(environment, on_terminal)) found.push_back(*task);
  return found;
}

// Each of several processes would train alone. In a Slurm job the ranks may be for the PMI library only.
void refuse_rank_without_size(const Environment& environment) {
  if (environment("SLURM_JOB_ID")) return;
  std::vector<const char*> ranks{kPmixRank};
  for (const Names& names : kMpi) ranks.push_back(names.rank);
  for (const char* name : ranks) {
    const auto rank = environment(name);
    if (!rank) continue;
    throw ConfigError("a launcher started this process as rank ", *rank, " (", name,
                      "), but did not give the number of processes; set RANK and WORLD_SIZE, or give "
                      "--rank and --world-size");
  }
}

std::string describe(const RankAssignment& assignment) {
  return concat(assignment.launcher, " gives rank ", assignment.rank, " of ", assignment.size, " (",
                assignment.rank_name, ", ", assignment.size_name, ")");
}

void refuse_contradiction(const RankAssignment& inner, const RankAssignment& outer) {
  const bool is_shell = outer.size == 1;  // one task of srun, in which the other processes were started by hand
  if (is_shell || (inner.rank == outer.rank && inner.size == outer.size)) return;
  throw ConfigError("two launchers contradict each other: ", describe(inner), ", but ", describe(outer),
                    "; remove or unset the one that you do not want");
}

// First host of a Slurm host list: "node7" of "node[7-9,12],other", "rack0_blade3" of "rack[0-1]_blade[3-4]".
std::optional<std::string> first_host(std::string_view list) {
  std::string host;
  while (!list.empty() && list.front() != ',') {
    const bool is_range = list.front() == '[';
    const std::size_t end = is_range ? list.find(']') : list.find_first_of("[,");
    if (is_range && end == std::string_view::npos) return std::nullopt;
    const std::string_view part = is_range ? list.substr(1, end - 1) : list.substr(0, end);
    host += is_range ? part.substr(0, part.find_first_of("-,")) : part;
    list.remove_prefix(std::min(list.size(), is_range ? end + 1 : end));
  }
  return host;
}

std::string job_port(std::uint64_t number) { return std::to_string(kFirstJobPort + number % kJobPorts); }

// The port is the same in all processes of one mpirun and differs for the next mpirun.
std::optional<std::string> port_of_open_mpi(const Environment& environment) {
  const auto job = environment("PMIX_NAMESPACE");
  if (!job) return std::nullopt;
  std::uint64_t number = 0;
  for (const char c : *job) number = number * 31 + static_cast<unsigned char>(c);
  return job_port(number);
}

}  // namespace

std::span<const std::string_view> launcher_prefixes() { return kPrefixes; }

bool has_terminal() {
  const int terminal = ::open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC);
  if (terminal < 0) return false;
  ::close(terminal);
  return true;
}

std::optional<std::string> process_environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
}

int parse_number(const std::string& what, const std::string& text, int low, int high) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < low || value > high)
    throw ConfigError(
        concat(what, " = '", text, "' is not a number from ", low, " to ", high, "; correct it or leave it out"));
  return value;
}

RankAssignment rank_assignment(const Environment& environment, bool on_terminal,
                               const std::optional<RankAssignment>& of_options) {
  std::vector<RankAssignment> found = assignments_in(environment, on_terminal);
  if (of_options) {
    found.insert(found.begin(), *of_options);
    read_local_part(found[0], kVariables, environment);
  }
  for (std::size_t i = 1; i < found.size(); ++i) refuse_contradiction(found[0], found[i]);
  if (found.empty()) refuse_rank_without_size(environment);
  return found.empty() ? RankAssignment{} : found[0];
}

std::optional<std::string> launchers_host(const RankAssignment& assignment, const Environment& environment) {
  for (const char* name : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"}) {
    const auto list = environment(name);
    if (list && !list->empty()) return first_host(*list);
  }
  const bool is_mpi = std::ranges::find(kMpi, assignment.launcher, &Names::launcher) != kMpi.end();
  if (is_mpi && assignment.local_size == assignment.size) return "127.0.0.1";
  return std::nullopt;
}

std::optional<std::string> launchers_port(const Environment& environment) {
  if (environment(kOpenMpi.rank)) return port_of_open_mpi(environment);
  const auto job = environment("SLURM_JOB_ID");
  if (!job) return std::nullopt;
  std::uint64_t step = 0;
  if (const auto text = environment("SLURM_STEP_ID")) std::from_chars(text->data(), text->data() + text->size(), step);
  const int number = parse_number("SLURM_JOB_ID", *job, 0, kLargestNumber);
  return job_port(static_cast<std::uint64_t>(number) + step * kPortsBetweenSteps);
}

std::string launch_remark(const RankAssignment& assignment, const Environment& environment) {
  const auto tasks = environment("SLURM_NTASKS");
  if (!assignment.launcher.empty() || !tasks || *tasks == "1") return {};
  return concat("the Slurm job has ", *tasks,
                " tasks, but this process was not started by srun: it trains alone; "
                "`srun sluice train ...` starts one process per task");
}

}  // namespace sluice::comm
