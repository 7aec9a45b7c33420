// random_number: a number that differs in almost every call and process. It distinguishes messages. Threads: any.
#pragma once

#include <cstdint>
#include <random>

namespace sluice::ps {

// At least 1, and small enough that counting on from it cannot overflow.
inline std::int64_t random_number() {
  std::random_device random;
  return std::uniform_int_distribution<std::int64_t>(1, std::int64_t{1} << 60)(random);
}

}  // namespace sluice::ps
