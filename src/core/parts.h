// parts: splits numbered things into consecutive parts. Sizes differ by at most one, larger parts first.
#pragma once

#include <algorithm>
#include <cstdint>

namespace sluice {

struct NumberRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  [[nodiscard]] std::int64_t size() const { return end - begin; }
  bool operator==(const NumberRange&) const = default;
};

// Where part `part` of 0 .. count - 1 begins. Requires: parts > 0, 0 <= part <= parts.
[[nodiscard]] constexpr std::int64_t part_begin(std::int64_t count, std::int64_t parts, std::int64_t part) {
  return part * (count / parts) + std::min(part, count % parts);
}

[[nodiscard]] constexpr NumberRange part_range(std::int64_t count, std::int64_t parts, std::int64_t part) {
  return {part_begin(count, parts, part), part_begin(count, parts, part + 1)};
}

}  // namespace sluice
