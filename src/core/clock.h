// clock: the one monotonic clock that all spans and timeouts use. Nanoseconds since an arbitrary start.
#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>

namespace sluice {

using Nanoseconds = std::int64_t;

[[nodiscard]] inline Nanoseconds now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Seconds since 1970, for records.
[[nodiscard]] inline double unix_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

[[nodiscard]] constexpr double to_ms(Nanoseconds duration) { return static_cast<double>(duration) * 1e-6; }
[[nodiscard]] constexpr double to_s(Nanoseconds duration) { return static_cast<double>(duration) * 1e-9; }
[[nodiscard]] inline Nanoseconds from_s(double seconds) { return std::llround(seconds * 1e9); }

[[nodiscard]] constexpr double per_second(double amount, Nanoseconds duration) {
  return duration > 0 ? amount / to_s(duration) : 0.0;
}

}  // namespace sluice
