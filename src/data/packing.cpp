#include "data/packing.h"

#include <algorithm>
#include <bit>

#include "core/check.h"

namespace sluice::data {

std::vector<std::int64_t> first_fit(std::span<const std::int32_t> lengths, std::int32_t room) {
  // A tree over the rows: node i has the largest room of rows below it, its children are 2i and 2i + 1.
  const std::size_t leaves = std::bit_ceil(std::max<std::size_t>(lengths.size(), 1));
  std::vector<std::int32_t> most(2 * leaves, room);
  std::vector<std::int64_t> rows;
  rows.reserve(lengths.size());
  for (const std::int32_t length : lengths) {
    check(length >= 1 && length <= room, "a piece that fits into a row");
    std::size_t node = 1;
    while (node < leaves) node = 2 * node + (most[2 * node] >= length ? 0 : 1);
    rows.push_back(static_cast<std::int64_t>(node - leaves));
    most[node] -= length;
    while ((node /= 2) > 0) most[node] = std::max(most[2 * node], most[2 * node + 1]);
  }
  return rows;
}

}  // namespace sluice::data
