#include "tune/shares.h"

#include <algorithm>
#include <queue>
#include <utility>

#include "core/check.h"

namespace sluice::tune {

// Gives each unit to the replica that would be done with it first. No other order has an earlier latest end.
std::vector<std::int64_t> fastest_shares(const std::vector<Nanoseconds>& times, std::int64_t units) {
  const auto replicas = std::ssize(times);
  check(replicas > 0, "a replica");
  std::vector<std::int64_t> shares(times.size(), 0);
  std::priority_queue<std::pair<Nanoseconds, std::ptrdiff_t>>
      next;  // (-end of the replica's next unit, -replica): the earliest end is on top
  for (std::ptrdiff_t replica = 0; replica < replicas; ++replica) {
    check(times[replica] > 0, "a time for each replica");
    next.emplace(-times[replica], -replica);
  }
  for (std::int64_t given = 0; given < units; ++given) {
    const std::ptrdiff_t replica = -next.top().second;
    next.pop();
    ++shares[replica];
    next.emplace(-(shares[replica] + 1) * times[replica], -replica);
  }
  return shares;
}

Nanoseconds slowest(const std::vector<Nanoseconds>& times, const std::vector<std::int64_t>& shares) {
  Nanoseconds longest = 0;
  for (std::size_t replica = 0; replica < times.size(); ++replica)
    longest = std::max(longest, times[replica] * shares.at(replica));
  return longest;
}

}  // namespace sluice::tune
