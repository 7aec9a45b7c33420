// machine_cores: the cores that a process may run on, and how the processes of a run share them. Threads: any.
#pragma once

#include <set>
#include <string>
#include <vector>

namespace sluice::comm {

struct MachineCores {
  std::string machine;  // the same for all processes of one machine, and different for others
  std::set<int> cores;

  [[nodiscard]] std::string to_text() const;
  [[nodiscard]] static MachineCores from_text(const std::string& text);
  bool operator==(const MachineCores&) const = default;
};

[[nodiscard]] MachineCores cores_of_this_process();

// Number of cores for this rank's process: a core that k processes may run on counts 1/k. 0: unknown.
[[nodiscard]] double cores_of_rank(const std::vector<MachineCores>& of_ranks, int rank);

}  // namespace sluice::comm
