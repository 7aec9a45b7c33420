// shard_plan: assigns the parameters to shards. Every element is in one shard. A parameter longer than the split bound
// is cut into nearly equal pieces. The pieces go, the largest first, to the smallest shard (Graham's rule: no shard is
// more than a third longer than in the best packing). Pure. Errors: BugError for counts out of range.
#pragma once

#include <cstdint>
#include <vector>

namespace sluice::ps {

struct Piece {
  int parameter = 0;       // index in the list of sizes
  std::int64_t begin = 0;  // range of elements of the parameter
  std::int64_t end = 0;
  std::int64_t offset = 0;  // position in the shard, in elements

  [[nodiscard]] std::int64_t elements() const { return end - begin; }
  friend bool operator==(const Piece&, const Piece&) = default;
};

struct Shard {
  std::vector<Piece> pieces;  // in the order of the parameters
  std::int64_t elements = 0;

  friend bool operator==(const Shard&, const Shard&) = default;
};

// sizes: [parameter], elements. A shard may be empty if there are fewer pieces than shards.
[[nodiscard]] std::vector<Shard> plan_shards(const std::vector<std::int64_t>& sizes, int shards,
                                             std::int64_t split_bound);

}  // namespace sluice::ps
