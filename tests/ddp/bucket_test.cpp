#include "ddp/bucket.h"

#include <gtest/gtest.h>

#include <set>

#include "core/error.h"
#include "core/rng.h"

namespace sluice::ddp {
namespace {

TEST(MakeBuckets, CutsFromTheEndAndClosesABucketBeforeItWouldExceedTheLimit) {
  const std::vector<comm::Extent> extents{{ParamId{0}, 0, 4}, {ParamId{1}, 4, 6}, {ParamId{2}, 6, 9}};
  const auto buckets = make_buckets(extents, 5);
  ASSERT_EQ(buckets.size(), 2U);
  EXPECT_EQ(buckets[0].begin, 4);
  EXPECT_EQ(buckets[0].end, 9);
  EXPECT_EQ(buckets[0].params, (std::vector{ParamId{2}, ParamId{1}}));
  EXPECT_EQ(buckets[1].begin, 0);
  EXPECT_EQ(buckets[1].end, 4);
}

TEST(MakeBuckets, AParameterLargerThanTheLimitGetsABucketOfItsOwn) {
  const std::vector<comm::Extent> extents{{ParamId{0}, 0, 2}, {ParamId{1}, 2, 100}, {ParamId{2}, 100, 101}};
  EXPECT_EQ(make_buckets(extents, 10).size(), 3U);
}

TEST(MakeBuckets, OverlappingExtentsAreOurBug) {
  const std::vector<comm::Extent> extents{{ParamId{0}, 0, 5}, {ParamId{1}, 4, 6}};
  EXPECT_THROW(static_cast<void>(make_buckets(extents, 100)), BugError);
}

TEST(MakeBuckets, TilesEveryRandomLayoutWithEveryParameterOnce) {
  RngStream rng(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<comm::Extent> extents;
    std::int64_t at = 0;
    const int params = 1 + static_cast<int>(rng.below(20));
    for (int p = 0; p < params; ++p) {
      const auto size = static_cast<std::int64_t>(1 + rng.below(50));
      extents.push_back({ParamId{p}, at, at + size});
      at += size + static_cast<std::int64_t>(rng.below(3));  // padding between parameters
    }
    std::set<int> seen;
    std::int64_t end = extents.back().end;
    for (const Bucket& bucket : make_buckets(extents, 60)) {
      EXPECT_EQ(bucket.end, end);
      end = bucket.begin;
      for (const ParamId param : bucket.params) EXPECT_TRUE(seen.insert(index(param)).second);
    }
    EXPECT_EQ(end, 0);
    EXPECT_EQ(static_cast<int>(seen.size()), params);
  }
}

}  // namespace
}  // namespace sluice::ddp
