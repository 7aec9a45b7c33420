#include "ddp/bucket.h"

#include <ranges>

#include "core/check.h"

namespace sluice::ddp {

std::vector<Bucket> make_buckets(std::span<const comm::Extent> extents, std::int64_t bucket_elements) {
  std::vector<Bucket> buckets;
  for (const comm::Extent& extent : std::views::reverse(extents)) {
    check(extent.begin <= extent.end, "an extent whose begin is at most its end");
    const std::int64_t end = buckets.empty() ? extent.end : buckets.back().begin;
    check(extent.end <= end, "extents that are ascending and disjoint");
    const bool fits = !buckets.empty() && buckets.back().end - extent.begin <= bucket_elements;
    if (!fits) buckets.push_back({extent.begin, end, {}});
    buckets.back().begin = extent.begin;
    buckets.back().params.push_back(extent.param);
  }
  return buckets;
}

}  // namespace sluice::ddp
