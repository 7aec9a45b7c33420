// bucket: splits a stage's flat gradient (parameters in model order, tied copies last) into contiguous buckets that are
// reduced together. Backward completes the last layers first, so buckets are formed from the end.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/replica_sync.h"
#include "core/ids.h"

namespace sluice::ddp {

struct Bucket {
  std::int64_t begin;  // elements
  std::int64_t end;
  std::vector<ParamId> params;
};

// Requires ascending, disjoint `extents`, which the buckets tile; the first bucket holds the last parameters. A bucket
// exceeds `bucket_elements` only if a single parameter does.
[[nodiscard]] std::vector<Bucket> make_buckets(std::span<const comm::Extent> extents, std::int64_t bucket_elements);

}  // namespace sluice::ddp
