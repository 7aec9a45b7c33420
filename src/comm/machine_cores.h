// machine_cores: the cores that a process may run on, and how the processes of a run share them. Threads: any.
#pragma once

#include <set>
#include <string>
#include <vector>

namespace sluice::comm {

struct MachineCores {
  std::string machine;  // the same for all processes of one machine, and different for others
  std::set<int> cores;
  int local_rank = -1;  // World::local_rank; -1: unknown

  [[nodiscard]] std::string to_text() const;
  [[nodiscard]] static MachineCores from_text(const std::string& text);
  bool operator==(const MachineCores&) const = default;
};

[[nodiscard]] MachineCores cores_of_this_process(int local_rank = -1);

// Number of cores for this rank's process: a core that k processes may run on counts 1/k. 0: unknown.
[[nodiscard]] double cores_of_rank(const std::vector<MachineCores>& of_ranks, int rank);

// A rank's process among those of its machine. Processes that do not know their local rank take the lowest ones that
// are free, in the order of their ranks.
struct LocalPlace {
  int rank = 0;
  int size = 0;  // above each local rank
};
[[nodiscard]] LocalPlace place_of_rank(const std::vector<MachineCores>& of_ranks, int rank);

}  // namespace sluice::comm
