// divided_up: integer division that rounds up. Requires: a >= 0, b > 0.
#pragma once

#include <concepts>
#include <type_traits>

namespace sluice {

template <std::integral Integer>
[[nodiscard]] constexpr Integer divided_up(Integer a, std::type_identity_t<Integer> b) {
  return (a + b - 1) / b;
}

}  // namespace sluice
