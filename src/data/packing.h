// packing: places documents into rows of limited length. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sluice::data {

// The row of each piece: the first one with enough room, in the order of the pieces. Rows begin empty, and are numbered
// as they are first used. Requires: 1 <= length <= room. O(n log n).
[[nodiscard]] std::vector<std::int64_t> first_fit(std::span<const std::int32_t> lengths, std::int32_t room);

}  // namespace sluice::data
