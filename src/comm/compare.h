// compare: checks whether all processes of a run hold the same values, and names the ranks that differ.
// Threads: one; every process passes the same number of values. Errors: PeerError.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/replica_sync.h"

namespace sluice::comm {

struct Difference {
  std::size_t position = 0;  // index of the first value that differs between processes
  std::vector<int> ranks;    // ranks whose value differs from rank 0's

  [[nodiscard]] std::string describe_ranks() const;  // "rank 1", "ranks 1, 3"
  bool operator==(const Difference&) const = default;
};

[[nodiscard]] std::optional<Difference> find_difference(const Communicator& communicator,
                                                        const std::vector<std::int64_t>& values);
[[nodiscard]] std::optional<Difference> find_difference(ReplicaSync& sync, const std::vector<std::int64_t>& values);

}  // namespace sluice::comm
