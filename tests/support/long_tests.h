// long_tests: what is too long for CI. It runs where SLUICE_LONG_TESTS is set, as the CTest entries NAME_long have it
// (LONG in cmake/SluiceTargets.cmake), which have the label `long`. tests/support/long_tests.py is the same for Python.
#pragma once

#include <cstdlib>
#include <iostream>
#include <string_view>

namespace sluice::test {

inline bool runs_long_tests() { return std::getenv("SLUICE_LONG_TESTS") != nullptr; }

// One line of how much of `what` runs and where the rest does.
inline void tell_share(std::size_t runs, std::size_t all, std::string_view what) {
  std::cout << runs << " of " << all << ' ' << what;
  if (runs < all) std::cout << "; all of them where SLUICE_LONG_TESTS is set";
  std::cout << '\n';
}

}  // namespace sluice::test
