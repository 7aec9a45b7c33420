// machine_cores: which cores of which machine a process may run on, and how the processes of a run share them.
// Processes that were bound to cores of their own, by a launcher or a container, share nothing. Values. Threads: any.
// Errors: none.
#pragma once

#include <set>
#include <string>
#include <vector>

namespace sluice::comm {

struct MachineCores {
  std::string machine;  // the same for all processes of one machine, and for no others
  std::set<int> cores;

  [[nodiscard]] std::string to_text() const;
  [[nodiscard]] static MachineCores from_text(const std::string& text);
  bool operator==(const MachineCores&) const = default;
};

[[nodiscard]] MachineCores cores_of_this_process();

// Cores for the process of this rank: of each core that k processes may run on, 1/k. 0: it may run on none that is
// known.
[[nodiscard]] double cores_of_rank(const std::vector<MachineCores>& of_ranks, int rank);

}  // namespace sluice::comm
