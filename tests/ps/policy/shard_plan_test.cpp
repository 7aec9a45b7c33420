#include "ps/policy/shard_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

namespace sluice::ps {
namespace {

std::int64_t longest(const std::vector<Shard>& shards) {
  return std::ranges::max(shards, {}, &Shard::elements).elements;
}

void expect_whole(const std::vector<std::int64_t>& sizes, const std::vector<Shard>& shards, std::int64_t bound) {
  std::vector<std::vector<int>> seen(sizes.size());
  for (std::size_t p = 0; p < sizes.size(); ++p) seen[p].assign(sizes[p], 0);
  for (const Shard& shard : shards) {
    std::int64_t offset = 0;
    for (const Piece& piece : shard.pieces) {
      EXPECT_EQ(piece.offset, offset);
      EXPECT_GT(piece.elements(), 0);
      EXPECT_LE(piece.elements(), bound);
      for (std::int64_t i = piece.begin; i < piece.end; ++i) ++seen[piece.parameter][i];
      offset += piece.elements();
    }
    EXPECT_EQ(shard.elements, offset);
  }
  for (const auto& of_parameter : seen) EXPECT_TRUE(std::ranges::all_of(of_parameter, [](int n) { return n == 1; }));
}

TEST(ShardPlan, HasEveryElementOnceForAnyNumberOfShards) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<std::int64_t> sizes(1 + random() % 12);
    for (auto& size : sizes) size = random() % 100;
    const int shards = 1 + static_cast<int>(random() % 7);
    const auto bound = static_cast<std::int64_t>(1 + random() % 40);
    const auto plan = plan_shards(sizes, shards, bound);
    ASSERT_EQ(plan.size(), static_cast<std::size_t>(shards));
    expect_whole(sizes, plan, bound);
    // The least-filled shard takes each piece, so the longest is at most the mean and one piece.
    const std::int64_t all = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
    EXPECT_LE(longest(plan), all / shards + bound);
  }
}

std::int64_t best(const std::vector<std::int64_t>& sizes, std::size_t next, std::vector<std::int64_t>& loads) {
  if (next == sizes.size()) return std::ranges::max(loads);
  std::int64_t found = std::numeric_limits<std::int64_t>::max();
  for (std::int64_t& load : loads) {
    load += sizes[next];
    found = std::min(found, best(sizes, next + 1, loads));
    load -= sizes[next];
  }
  return found;
}

TEST(ShardPlan, IsNoMoreThanAThirdLongerThanTheBest) {
  std::mt19937 random(5);
  for (int trial = 0; trial < 60; ++trial) {
    std::vector<std::int64_t> sizes(1 + random() % 8);
    for (auto& size : sizes) size = 1 + random() % 50;
    std::vector<std::int64_t> loads(2 + random() % 2);
    const auto plan = plan_shards(sizes, static_cast<int>(loads.size()), 1000);
    EXPECT_LE(3 * longest(plan), 4 * best(sizes, 0, loads));
  }
}

TEST(ShardPlan, OneHugeMatrixIsSpreadEvenly) {
  const auto plan = plan_shards({1'000'003, 10, 10}, 4, 250'001);
  for (const Shard& shard : plan) EXPECT_NEAR(static_cast<double>(shard.elements), 250'006, 20);
}

}  // namespace
}  // namespace sluice::ps
