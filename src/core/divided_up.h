// divided_up: integer division that rounds up. Requires: a >= 0, b > 0.
#pragma once

#include <cstdint>

namespace sluice {

[[nodiscard]] constexpr std::int64_t divided_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace sluice
