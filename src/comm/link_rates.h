// link_rates: how fast each pair of processes can exchange data. Threads: one; all processes call it. Errors: those of
// the communicator.
#pragma once

#include <vector>

#include "comm/communicator.h"

namespace sluice::comm {

struct LinkRate {
  int from = 0, to = 0;  // ranks
  double bytes_per_s = 0;
};

// One pair after another, both directions at once, 1 MiB each. Returns the same list in every process, slowest first.
[[nodiscard]] std::vector<LinkRate> measure_link_rates(const Communicator& communicator);

}  // namespace sluice::comm
