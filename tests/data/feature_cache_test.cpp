#include "data/feature_cache.h"

#include <gmock/gmock.h>

#include <atomic>
#include <random>
#include <thread>

#include "core/error.h"
#include "data/feature_tensors.h"
#include "support/files.h"

namespace sluice::data {
namespace {

using test::fetched;
using test::hits_of;
using test::inputs_of;
using test::kChannels;
using test::keys_between;
using test::kSide;
using test::kSizes;
using test::same_bits;
using test::sizes_with;
using test::stores;
using testing::HasSubstr;

TEST(FeatureCache, AHitIsBitForBitWhatWasStored) {
  const test::TempDir dir;
  const auto keys = keys_between(0, 60);
  for (const auto& options : stores(dir)) {
    for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
      FeatureCache cache(options);
      cache.use("a", kSizes, type);
      at::Tensor rows = inputs_of(keys).to(type);
      rows[3][0][0][0] = std::numeric_limits<double>::quiet_NaN();
      rows[3][0][0][1] = -0.0;
      cache.store(keys, rows);
      EXPECT_TRUE(same_bits(fetched(cache, keys, kSizes, type), rows)) << type;
    }
  }
}

TEST(FeatureCache, WithBfloat16AHitIsTheRoundingOfATen) {
  const test::TempDir dir;
  const auto keys = keys_between(0, 60);
  for (auto options : stores(dir)) {
    options.as_bfloat16 = true;
    for (const auto type : {at::kFloat, at::kDouble}) {
      FeatureCache cache(options);
      cache.use("a", kSizes, type);
      at::Tensor rows = inputs_of(keys, type) * 1e3;
      rows[0][0][0][0] = std::numeric_limits<double>::infinity();
      rows[0][0][0][1] = 3.4e38;      // rounds to infinity
      rows[0][0][0][2] = 1.00390625;  // half way: to even, down
      rows[0][0][0][3] = 1.01171875;  // half way: to even, up
      rows[0][0][0][4] = 1e-40;       // subnormal
      cache.store(keys, rows);
      const at::Tensor found = fetched(cache, keys, kSizes, type);
      EXPECT_TRUE(same_bits(found, rows.to(at::kBFloat16).to(type))) << type;
      EXPECT_EQ(found[0][0][0][2].item<double>(), 1.0);
      EXPECT_EQ(found[0][0][0][3].item<double>(), 1.015625);
    }
  }
}

TEST(FeatureCache, Bfloat16TakesHalfTheMemory) {
  const auto keys = keys_between(0, 2000);
  std::int64_t rows[2] = {};
  for (const bool rounded : {false, true}) {
    FeatureCache cache({.memory_bytes = 400'000, .as_bfloat16 = rounded});
    cache.use("a", kSizes, at::kFloat);
    cache.store(keys, inputs_of(keys));
    rows[rounded ? 1 : 0] = cache.statistics().rows_in_memory;
  }
  EXPECT_GT(rows[0], 400);
  EXPECT_GT(static_cast<double>(rows[1]), 1.7 * static_cast<double>(rows[0]));
}

TEST(FeatureCache, HitsAndMissesWithinOneBatch) {
  FeatureCache cache({.memory_bytes = 1 << 20});
  cache.use("a", kSizes, at::kFloat);
  const std::vector<FeatureKey> some{{1, 0}, {3, 0}, {5, 1}};
  cache.store(some, inputs_of(some));
  const std::vector<FeatureKey> batch{{0, 0}, {1, 0}, {1, 1}, {5, 1}, {3, 0}, {5, 0}};
  at::Tensor rows = at::full(sizes_with(6), 7.0);
  EXPECT_THAT(cache.fetch(batch, rows), testing::ElementsAre(false, true, false, true, true, false));
  const at::Tensor all = inputs_of(batch);
  for (const std::int64_t i : {1, 3, 4}) EXPECT_TRUE(same_bits(rows[i], all[i])) << i;
  for (const std::int64_t i : {0, 2, 5}) EXPECT_TRUE(same_bits(rows[i], at::full(kSizes, 7.0))) << i;
  EXPECT_EQ(cache.statistics().hits, 3);
  EXPECT_EQ(cache.statistics().misses, 3);
}

TEST(FeatureCache, RowsOfAnyLayoutAreStoredAndFetched) {
  const auto keys = keys_between(0, 6);
  for (const bool rounded : {false, true}) {
    FeatureCache cache({.memory_bytes = 1 << 20, .as_bfloat16 = rounded});
    cache.use("a", kSizes, at::kFloat);
    const at::Tensor rows = inputs_of(keys).to(at::kBFloat16).to(at::kFloat);
    cache.store(keys, rows.contiguous(at::MemoryFormat::ChannelsLast));
    at::Tensor last = at::zeros(sizes_with(6)).contiguous(at::MemoryFormat::ChannelsLast);
    EXPECT_THAT(cache.fetch(keys, last), testing::Each(true));
    EXPECT_TRUE(same_bits(last, rows));
    const at::Tensor larger = at::full(sizes_with(12), 7.0);
    at::Tensor half = larger.slice(0, 0, 12, 2);
    EXPECT_THAT(cache.fetch(keys, half), testing::Each(true));
    EXPECT_TRUE(same_bits(larger.slice(0, 0, 12, 2), rows));
    EXPECT_TRUE(same_bits(larger.slice(0, 1, 12, 2), at::full(sizes_with(6), 7.0)));
  }
}

TEST(FeatureCache, RowsOfAGpuAreStoredAndFetched) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no CUDA device is visible";
  const auto keys = keys_between(0, 6);
  for (const bool rounded : {false, true}) {
    FeatureCache cache({.memory_bytes = 1 << 20, .as_bfloat16 = rounded});
    cache.use("a", kSizes, at::kFloat);
    const at::Tensor rows = inputs_of(keys).to(at::kBFloat16).to(at::kFloat);
    cache.store(keys_between(0, 2), rows.slice(0, 0, 2));
    cache.store(keys, rows.to(at::kCUDA));
    at::Tensor found = at::zeros(sizes_with(6), at::dtype(at::kFloat).device(at::kCUDA));
    EXPECT_THAT(cache.fetch(keys, found), testing::Each(true));
    EXPECT_TRUE(same_bits(found.cpu(), rows));
    cache.advance("b", kSizes, at::kFloat, [](const at::Tensor& before, auto) { return before.to(at::kCUDA) * 2; });
    EXPECT_TRUE(same_bits(fetched(cache, keys), rows * 2));
  }
}

TEST(FeatureCache, AScalarIsARowToo) {
  FeatureCache cache({.memory_bytes = 1 << 20});
  cache.use("a", {}, at::kLong);
  const auto keys = keys_between(0, 100);
  cache.store(keys, at::arange(100));
  EXPECT_TRUE(same_bits(fetched(cache, keys, {}, at::kLong), at::arange(100)));
}

TEST(FeatureCache, AnEmptyBatchIsNothing) {
  FeatureCache cache({.memory_bytes = 1 << 20});
  cache.use("a", kSizes, at::kFloat);
  cache.store({}, at::zeros(sizes_with(0)));
  EXPECT_EQ(hits_of(cache, {}), 0);
}

TEST(FeatureCache, EntriesOfAnotherPrefixSizeOrTypeAreDropped) {
  const test::TempDir dir;
  const auto keys = keys_between(0, 60);
  const at::Tensor rows = inputs_of(keys);
  for (const auto& options : stores(dir)) {
    FeatureCache cache(options);
    cache.use("a", kSizes, at::kFloat);
    cache.store(keys, rows);
    cache.use("a", kSizes, at::kFloat);
    EXPECT_EQ(hits_of(cache, keys), 60) << "the same prefix keeps them";
    cache.use("b", kSizes, at::kFloat);
    EXPECT_EQ(hits_of(cache, keys), 0);
    cache.store(keys, rows + 1);
    EXPECT_TRUE(same_bits(fetched(cache, keys), rows + 1));
    cache.use("a", kSizes, at::kFloat);
    EXPECT_EQ(hits_of(cache, keys), 0) << "what was dropped does not come back";
    cache.store(keys, rows);
    cache.use("a", {kChannels * kSide * kSide}, at::kFloat);
    EXPECT_EQ(hits_of(cache, keys, {kChannels * kSide * kSide}), 0);
    cache.store(keys, rows.flatten(1));
    cache.use("a", {kChannels * kSide * kSide}, at::kDouble);
    EXPECT_EQ(hits_of(cache, keys, {kChannels * kSide * kSide}, at::kDouble), 0);
    const auto now = cache.statistics();
    EXPECT_EQ(now.rows_in_memory + now.rows_on_disk, 0);
    EXPECT_EQ(now.disk_bytes, 0U);
  }
}

TEST(FeatureCache, RowsOfAnotherFormatAreABug) {
  FeatureCache cache({.memory_bytes = 1 << 20});
  cache.use("a", kSizes, at::kFloat);
  at::Tensor wrong_type = at::zeros(sizes_with(2), at::kDouble);
  at::Tensor wrong_count = at::zeros(sizes_with(3));
  EXPECT_THROW(cache.store(keys_between(0, 2), wrong_type), BugError);
  EXPECT_THAT([&] { cache.fetch(keys_between(0, 2), wrong_count); },
              testing::ThrowsMessage<BugError>(HasSubstr("rows [2, 3, 8, 8] of Float, not [3, 3, 8, 8] of Float")));
}

TEST(FeatureCache, EpochsInTheAnnouncedOrderAreAllHits) {
  const test::TempDir dir;
  const FeatureCacheOptions options{.memory_bytes = 400'000, .disk_bytes = 1 << 20, .directory = dir.path()};
  FeatureCache cache(options);
  cache.use("a", kSizes, at::kFloat);
  auto keys = keys_between(0, 800);
  std::mt19937 random(6);
  for (int epoch = 0; epoch < 4; ++epoch) {
    std::ranges::shuffle(keys, random);
    cache.read_ahead(keys);
    std::atomic<std::int64_t> hits = 0;
    const auto replica = [&](std::size_t first) {
      for (std::size_t begin = first; begin < keys.size(); begin += 40) {
        const std::vector<FeatureKey> batch(keys.begin() + static_cast<std::ptrdiff_t>(begin),
                                            keys.begin() + static_cast<std::ptrdiff_t>(begin) + 20);
        const at::Tensor expected = inputs_of(batch);
        at::Tensor rows = expected.clone();
        const auto found = cache.fetch(batch, rows);
        EXPECT_TRUE(same_bits(rows, expected));
        hits += std::ranges::count(found, true);
        cache.store(batch, expected);
        EXPECT_LE(cache.statistics().memory_bytes, options.memory_bytes);
      }
    };
    {
      const std::jthread one([&] { replica(0); });
      const std::jthread other([&] { replica(20); });
    }
    EXPECT_EQ(hits, epoch == 0 ? 0 : 800);
  }
  EXPECT_GT(cache.statistics().rows_on_disk, 400);
  EXPECT_EQ(cache.statistics().damaged, 0);
}

TEST(FeatureCache, APrefixChangesWhileThreadsFetch) {
  const test::TempDir dir;
  FeatureCache cache({.memory_bytes = 150'000, .disk_bytes = 1 << 20, .directory = dir.path()});
  cache.use("0", {100}, at::kFloat);
  const auto keys = keys_between(0, 400);
  std::atomic<bool> ends = false;
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&] {
      while (!ends) {
        at::Tensor rows = at::full({400, 100}, -1.0);
        const auto found = cache.fetch(keys, rows);
        const at::Tensor first = rows.slice(1, 0, 1);
        EXPECT_TRUE(rows.eq(first).all().item<bool>());
        for (std::int64_t i = 0; i < 400; ++i) EXPECT_EQ(found[i], first[i].item<float>() >= 0);
        cache.read_ahead(keys);
      }
    });
  }
  for (int prefix = 1; prefix < 10; ++prefix) {
    cache.store(keys, at::full({400, 100}, static_cast<double>(prefix)));
    cache.advance(std::to_string(prefix) + "+", {100}, at::kFloat,
                  [](const at::Tensor& rows, auto) { return rows * 2; });
    EXPECT_TRUE(same_bits(fetched(cache, keys, {100}), at::full({400, 100}, 2.0 * prefix)));
    cache.use(std::to_string(prefix), {100}, at::kFloat);
  }
  ends = true;
}

}  // namespace
}  // namespace sluice::data
