// bucket: which parameters of a stage's flat gradient are reduced together.
// A flat gradient holds a stage's parameters in model order, tied copies last; a bucket is a contiguous range of it.
// Backward completes the last layers first, so buckets are cut from the end.
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

// Requires `extents` in ascending, disjoint order. Every parameter is in exactly one bucket; the buckets tile the range
// from the first extent's begin to the last one's end; a bucket exceeds `bucket_elements` only when a single parameter
// does. First bucket = the last parameters.
[[nodiscard]] std::vector<Bucket> make_buckets(std::span<const comm::Extent> extents, std::int64_t bucket_elements);

}  // namespace sluice::ddp
