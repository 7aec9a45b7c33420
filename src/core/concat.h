// concat: joins streamable values into one string (g++ 12 has no <format>).
#pragma once

#include <sstream>
#include <string>

namespace sluice {

template <typename... Parts>
[[nodiscard]] std::string concat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return std::move(out).str();
}

}  // namespace sluice
