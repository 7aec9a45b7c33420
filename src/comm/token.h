// token: proves that a connection belongs to a run.
#pragma once

#include <algorithm>
#include <iomanip>
#include <random>
#include <sstream>
#include <string>

namespace sluice::comm {

[[nodiscard]] inline std::string random_token() {
  std::random_device random;
  std::ostringstream token;
  token << std::hex << std::setfill('0');
  for (int word = 0; word < 4; ++word) token << std::setw(8) << random();
  return token.str();
}

// Compares in constant time, so that the time does not reveal the first difference.
[[nodiscard]] inline bool are_equal(const std::string& a, const std::string& b) {
  unsigned char difference = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) difference |= a[i] ^ b[i];
  return difference == 0;
}

}  // namespace sluice::comm
