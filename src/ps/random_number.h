// random_number: a number that no other process, and no other call, is likely to have: by such numbers messages are
// told apart. Not of a run's seed: nothing that is learnt depends on it. Threads: any.
#pragma once

#include <cstdint>
#include <random>

namespace sluice::ps {

// At least 1, and so small that counting on from it ends nowhere.
inline std::int64_t random_number() {
  std::random_device random;
  return std::uniform_int_distribution<std::int64_t>(1, std::int64_t{1} << 60)(random);
}

}  // namespace sluice::ps
