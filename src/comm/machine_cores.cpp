#include "comm/machine_cores.h"

#include <sched.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "core/concat.h"
#include "core/host.h"

namespace sluice::comm {

std::string MachineCores::to_text() const {
  std::string text = concat(machine, " ", local_rank);
  for (const int core : cores) text += concat(" ", core);
  return text;
}

MachineCores MachineCores::from_text(const std::string& text) {
  std::istringstream words(text);
  MachineCores read;
  words >> read.machine >> read.local_rank;
  for (int core = 0; words >> core;) read.cores.insert(core);
  return read;
}

MachineCores cores_of_this_process(int local_rank) {
  MachineCores own{.machine = boot_id(), .cores = {}, .local_rank = local_rank};
  if (own.machine.empty()) own.machine = host_name();
  cpu_set_t mask;
  CPU_ZERO(&mask);
  ::sched_getaffinity(0, sizeof mask, &mask);
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &mask)) own.cores.insert(core);
  }
  return own;
}

double cores_of_rank(const std::vector<MachineCores>& of_ranks, int rank) {
  const MachineCores& own = of_ranks.at(static_cast<std::size_t>(rank));
  std::map<std::ptrdiff_t, int> counts;  // [number of processes that may run on a core]: number of such cores
  for (const int core : own.cores) {
    ++counts[std::ranges::count_if(of_ranks, [&](const MachineCores& other) {
      return other.machine == own.machine && other.cores.contains(core);
    })];
  }
  double share = 0;
  for (const auto& [processes, cores] : counts) share += static_cast<double>(cores) / static_cast<double>(processes);
  return share;
}

LocalPlace place_of_rank(const std::vector<MachineCores>& of_ranks, int rank) {
  const std::string& machine = of_ranks.at(static_cast<std::size_t>(rank)).machine;
  std::set<int> taken;
  int count = 0;
  for (const MachineCores& other : of_ranks) {
    if (other.machine != machine) continue;
    ++count;
    if (other.local_rank >= 0) taken.insert(other.local_rank);
  }
  LocalPlace place{.rank = of_ranks[static_cast<std::size_t>(rank)].local_rank};
  for (int other = 0; other <= rank; ++other) {
    const MachineCores& known = of_ranks[static_cast<std::size_t>(other)];
    if (known.machine != machine || known.local_rank >= 0) continue;
    int lowest = 0;
    while (taken.contains(lowest)) ++lowest;
    taken.insert(lowest);
    if (other == rank) place.rank = lowest;
  }
  place.size = std::max(count, *taken.rbegin() + 1);
  return place;
}

}  // namespace sluice::comm
