// shares: how many micro-batches, or other equal units of work, each replica takes so that all end at about the same
// time. Pure; the same integers in every process.
#pragma once

#include <cstdint>
#include <vector>

#include "core/clock.h"

namespace sluice::tune {

// times: [replica], for one unit, above 0. Returns a number of units for each replica, with the sum `units`, so that
// the slowest replica takes as little time as possible. A replica that would delay the others even with one unit gets
// none.
[[nodiscard]] std::vector<std::int64_t> fastest_shares(const std::vector<Nanoseconds>& times, std::int64_t units);

// Time of the slowest replica.
[[nodiscard]] Nanoseconds slowest(const std::vector<Nanoseconds>& times, const std::vector<std::int64_t>& shares);

}  // namespace sluice::tune
