#include "comm/machine_cores.h"

#include <sched.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "core/concat.h"
#include "core/host.h"

namespace sluice::comm {

std::string MachineCores::to_text() const {
  std::string text = machine;
  for (const int core : cores) text += concat(" ", core);
  return text;
}

MachineCores MachineCores::from_text(const std::string& text) {
  std::istringstream words(text);
  MachineCores read;
  words >> read.machine;
  for (int core = 0; words >> core;) read.cores.insert(core);
  return read;
}

MachineCores cores_of_this_process() {
  MachineCores own{.machine = boot_id(), .cores = {}};
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

}  // namespace sluice::comm
