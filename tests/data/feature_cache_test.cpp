#include "data/feature_cache.h"

#include <gmock/gmock.h>

#include <atomic>
#include <random>
#include <stdexcept>
#include <thread>

#include "core/error.h"
#include "data/feature_support.h"
#include "support/files.h"

namespace sluice::data {
namespace {

using test::keys_between;
using testing::HasSubstr;

constexpr std::int64_t kChannels = 3;
constexpr std::int64_t kSide = 8;
const std::vector<std::int64_t> kSizes{kChannels, kSide, kSide};

// Images that tell their key: what a data set would give for this sample and view.
at::Tensor inputs_of(const std::vector<FeatureKey>& keys, at::ScalarType type = at::kFloat) {
  std::vector<at::Tensor> rows;
  for (const auto& key : keys) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(hash_of(key));
    rows.push_back(at::randn(kSizes, generator, at::dtype(type)));
  }
  return at::stack(rows);
}

std::vector<std::int64_t> sizes_with(std::int64_t rows, at::IntArrayRef sizes = kSizes) {
  std::vector<std::int64_t> all{rows};
  all.insert(all.end(), sizes.begin(), sizes.end());
  return all;
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor left = a.contiguous();
  const at::Tensor right = b.contiguous();
  return left.scalar_type() == right.scalar_type() && left.sizes() == right.sizes() &&
         std::memcmp(left.data_ptr(), right.data_ptr(), left.nbytes()) == 0;
}

// The rows of these keys, all of which must be there.
at::Tensor fetched(FeatureCache& cache, const std::vector<FeatureKey>& keys, at::IntArrayRef sizes = kSizes,
                   at::ScalarType type = at::kFloat) {
  at::Tensor rows = at::zeros(sizes_with(std::ssize(keys), sizes), type);
  EXPECT_THAT(cache.fetch(keys, rows), testing::Each(true));
  return rows;
}

std::int64_t hits_of(FeatureCache& cache, const std::vector<FeatureKey>& keys, at::IntArrayRef sizes = kSizes,
                     at::ScalarType type = at::kFloat) {
  at::Tensor rows = at::zeros(sizes_with(std::ssize(keys), sizes), type);
  return std::ranges::count(cache.fetch(keys, rows), true);
}

// In memory, on disk, and the first of them in memory and the others on disk.
std::vector<FeatureCacheOptions> places(const test::TempDir& dir) {
  return {{.memory_bytes = 1 << 20},
          {.memory_bytes = 1 << 20, .disk_bytes = 1 << 20, .directory = dir.path(), .rows_in_memory = false},
          {.memory_bytes = 80'000, .disk_bytes = 1 << 20, .directory = dir.path()}};
}

TEST(FeatureCache, AHitIsBitForBitWhatWasStored) {
  const test::TempDir dir;
  const auto keys = keys_between(0, 60);
  for (const auto& options : places(dir)) {
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
  for (auto options : places(dir)) {
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
    // Every other row of a larger tensor; the rows between stay.
    const at::Tensor larger = at::full(sizes_with(12), 7.0);
    at::Tensor half = larger.slice(0, 0, 12, 2);
    EXPECT_THAT(cache.fetch(keys, half), testing::Each(true));
    EXPECT_TRUE(same_bits(larger.slice(0, 0, 12, 2), rows));
    EXPECT_TRUE(same_bits(larger.slice(0, 1, 12, 2), at::full(sizes_with(6), 7.0)));
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
  for (const auto& options : places(dir)) {
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

TEST(FeatureCache, RowsThatDoNotFitWhatWasSaidAreABug) {
  FeatureCache cache({.memory_bytes = 1 << 20});
  cache.use("a", kSizes, at::kFloat);
  at::Tensor wrong_type = at::zeros(sizes_with(2), at::kDouble);
  at::Tensor wrong_count = at::zeros(sizes_with(3));
  EXPECT_THROW(cache.store(keys_between(0, 2), wrong_type), BugError);
  EXPECT_THAT([&] { cache.fetch(keys_between(0, 2), wrong_count); },
              testing::ThrowsMessage<BugError>(HasSubstr("rows [2, 3, 8, 8] of Float, not [3, 3, 8, 8] of Float")));
}

// Layers that keep the size of the rows, make them smaller, and larger.
struct NewLayers {
  const char* name;
  std::vector<std::int64_t> sizes;
  at::ScalarType type;
  FeatureCache::Forward forward;
};

std::vector<NewLayers> new_layers() {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(std::uint64_t{9});
  const at::Tensor same = at::randn({3, 3, 3, 3}, generator, at::dtype(at::kFloat));
  const at::Tensor more = at::randn({8, 3, 3, 3}, generator, at::dtype(at::kFloat));
  const auto convolve = [](const at::Tensor& rows, const at::Tensor& weight, std::int64_t stride) {
    return at::relu(at::conv2d(rows, weight, {}, stride, 1));
  };
  return {{"same", kSizes, at::kFloat, [=](const at::Tensor& rows) { return convolve(rows, same, 1); }},
          {"identity", kSizes, at::kFloat, [](const at::Tensor& rows) { return rows; }},
          {"in place", kSizes, at::kFloat, [](const at::Tensor& rows) { return rows.mul(2); }},
          {"a view", {3, 4, 8}, at::kFloat, [](const at::Tensor& rows) { return rows.slice(2, 2, 6); }},
          {"smaller", {3, 4, 4}, at::kFloat, [=](const at::Tensor& rows) { return convolve(rows, same, 2); }},
          {"larger", {8, 8, 8}, at::kFloat, [=](const at::Tensor& rows) { return convolve(rows, more, 1); }},
          {"type", kSizes, at::kDouble, [](const at::Tensor& rows) { return rows.to(at::kDouble) / 3; }}};
}

TEST(FeatureCache, AdvanceIsWhatAFreshStoreWouldHold) {
  const test::TempDir dir;
  const auto keys = keys_between(0, 100);
  const at::Tensor rows = inputs_of(keys);
  for (const auto& options : places(dir)) {
    for (const auto& layers : new_layers()) {
      SCOPED_TRACE(layers.name);
      FeatureCache cache(options);
      cache.use("a", kSizes, at::kFloat);
      cache.store(keys, rows);
      cache.advance("b", layers.sizes, layers.type, layers.forward);
      // A convolution of a row alone: its batch may change its last bits.
      const at::Tensor found = fetched(cache, keys, layers.sizes, layers.type);
      for (std::int64_t i = 0; i < 100; ++i)
        EXPECT_TRUE(at::allclose(found[i], layers.forward(rows.slice(0, i, i + 1))[0], 1e-6, 1e-6)) << i;
      cache.use("b", layers.sizes, layers.type);
      EXPECT_EQ(hits_of(cache, keys, layers.sizes, layers.type), 100);
      cache.use("a", kSizes, at::kFloat);
      EXPECT_EQ(hits_of(cache, keys), 0);
    }
  }
}

TEST(FeatureCache, AdvanceWithBfloat16RoundsOnceMore) {
  const auto keys = keys_between(0, 100);
  const at::Tensor rows = inputs_of(keys);
  FeatureCache cache({.memory_bytes = 1 << 20, .as_bfloat16 = true});
  cache.use("a", kSizes, at::kFloat);
  cache.store(keys, rows);
  cache.advance("b", kSizes, at::kFloat, [](const at::Tensor& kept) { return kept / 3; });
  const at::Tensor expected = (rows.to(at::kBFloat16).to(at::kFloat) / 3).to(at::kBFloat16).to(at::kFloat);
  EXPECT_TRUE(same_bits(fetched(cache, keys), expected));
}

TEST(FeatureCache, AnInputThatForwardKeepsStaysWhatItWas) {
  const auto keys = keys_between(0, 100);
  FeatureCache cache({.memory_bytes = 1 << 20});
  cache.use("a", kSizes, at::kFloat);
  cache.store(keys, inputs_of(keys));
  std::vector<at::Tensor> inputs;
  cache.advance("b", kSizes, at::kFloat, [&](const at::Tensor& rows) {
    inputs.push_back(rows);
    return rows + 1;
  });
  EXPECT_EQ(at::cat(inputs).size(0), 100);
  EXPECT_TRUE(same_bits(std::get<0>(at::cat(inputs).flatten().sort()), std::get<0>(inputs_of(keys).flatten().sort())));
}

TEST(FeatureCache, AForwardThatFailsLeavesAnEmptyCacheOfTheNewPrefix) {
  const auto keys = keys_between(0, 100);
  FeatureCache cache({.memory_bytes = 1 << 20});
  cache.use("a", kSizes, at::kFloat);
  cache.store(keys, inputs_of(keys));
  EXPECT_THROW(cache.advance("b", {4}, at::kFloat,
                             [](const at::Tensor&) -> at::Tensor { throw std::runtime_error("out of memory"); }),
               std::runtime_error);
  EXPECT_EQ(cache.statistics().rows_in_memory, 0);
  const at::Tensor rows = at::rand({100, 4});
  cache.store(keys, rows);
  cache.use("b", {4}, at::kFloat);
  EXPECT_TRUE(same_bits(fetched(cache, keys, {4}), rows));
}

TEST(FeatureCache, AForwardThatGivesOtherRowsThanWasSaidIsABug) {
  const auto keys = keys_between(0, 100);
  FeatureCache cache({.memory_bytes = 1 << 20});
  cache.use("a", kSizes, at::kFloat);
  cache.store(keys, inputs_of(keys));
  EXPECT_THROW(cache.advance("b", {5}, at::kFloat, [](const at::Tensor& rows) { return rows; }), BugError);
  cache.store(keys, at::rand({100, 5}));
  EXPECT_EQ(hits_of(cache, keys, {5}), 100);
}

TEST(FeatureCache, AdvanceIsWithinTheBudgetsAtEachMoment) {
  const test::TempDir dir;
  const auto keys = keys_between(0, 3000);
  const FeatureCacheOptions options{.memory_bytes = 1 << 20, .disk_bytes = 1 << 20, .directory = dir.path()};
  for (const auto& layers : new_layers()) {
    SCOPED_TRACE(layers.name);
    FeatureCache cache(options);
    cache.use("a", kSizes, at::kFloat);
    cache.store(keys, inputs_of(keys));
    const auto before = cache.statistics();
    ASSERT_GT(before.rows_on_disk, 1000);
    std::int64_t rows_seen = 0;
    cache.advance("b", layers.sizes, layers.type, [&](const at::Tensor& rows) {
      rows_seen += rows.size(0);
      EXPECT_LE(rows.size(0), 256);
      EXPECT_LE(cache.statistics().memory_bytes, options.memory_bytes);
      EXPECT_LE(cache.statistics().disk_bytes, options.disk_bytes);
      return layers.forward(rows);
    });
    EXPECT_EQ(rows_seen, before.rows_in_memory + before.rows_on_disk);
    EXPECT_LE(cache.statistics().memory_bytes, options.memory_bytes);
    EXPECT_LE(test::size_of(test::unnamed_files(dir.path()).at(0)), options.disk_bytes);
    const auto after = cache.statistics();
    if (c10::multiply_integers(layers.sizes) * c10::elementSize(layers.type) <= 768) {
      EXPECT_EQ(after.rows_in_memory + after.rows_on_disk, rows_seen);
    }
  }
}

// An epoch in its order, then the next one, as a run of two replicas does it.
TEST(FeatureCache, EpochsInTheOrderThatWasToldAreAllHits) {
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

// use() and advance() in the midst of threads that fetch: each row is wholly of one prefix.
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
    cache.advance(std::to_string(prefix) + "+", {100}, at::kFloat, [](const at::Tensor& rows) { return rows * 2; });
    EXPECT_TRUE(same_bits(fetched(cache, keys, {100}), at::full({400, 100}, 2.0 * prefix)));
    cache.use(std::to_string(prefix), {100}, at::kFloat);
  }
  ends = true;
}

}  // namespace
}  // namespace sluice::data
