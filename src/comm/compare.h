// compare: whether all processes of a run hold the same values, and who does not.
// Threads: one; every process calls it with as many values. Errors: PeerError.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/replica_sync.h"

namespace sluice::comm {

struct Difference {
  std::size_t position = 0;  // of the first value that is not the same everywhere
  std::vector<int> ranks;    // whose value is not that of rank 0

  [[nodiscard]] std::string describe_ranks() const;  // "rank 1", "ranks 1, 3"
  bool operator==(const Difference&) const = default;
};

// The same answer in all processes.
[[nodiscard]] std::optional<Difference> find_difference(const Communicator& communicator,
                                                        const std::vector<std::int64_t>& values);
[[nodiscard]] std::optional<Difference> find_difference(ReplicaSync& sync, const std::vector<std::int64_t>& values);

}  // namespace sluice::comm
