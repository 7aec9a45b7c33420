#include "data/feature_store.h"

#include <gmock/gmock.h>
#include <malloc.h>

#include <atomic>
#include <cstring>
#include <random>
#include <stdexcept>
#include <thread>

#include "core/sanitizers.h"
#include "data/feature_store_support.h"
#include "support/files.h"

namespace sluice::data {
namespace {

using test::Bytes;
using test::count_of;
using test::expect_budgets_kept;
using test::fetch_checked;
using test::keep;
using test::keys_between;
using testing::HasSubstr;

TEST(FeatureStore, KeepsWhatComesFirstInMemoryThenOnDiskAndNothingElse) {
  const test::TempDir dir;
  constexpr std::uint64_t kRow = 10'000;
  FeatureStore store({.memory_bytes = 1 << 20, .disk_bytes = 1 << 20, .directory = dir.path()});
  store.reset(kRow);
  for (std::int64_t sample = 0; sample < 400; sample += 10) keep(store, keys_between(sample, sample + 10), kRow);
  const auto kept = store.statistics();
  EXPECT_GE(kept.rows_in_memory, 75);  // 1 MiB less an eighth for reading ahead, less the index
  EXPECT_EQ(kept.rows_on_disk, (1 << 20) / 10'008);
  const auto found = fetch_checked(store, keys_between(0, 400), kRow);
  const auto rows = kept.rows_in_memory + kept.rows_on_disk;
  for (std::int64_t sample = 0; sample < 400; ++sample) EXPECT_EQ(found[sample], sample < rows) << sample;
  EXPECT_EQ(store.statistics().hits, rows);
  EXPECT_EQ(store.statistics().misses, 400 - rows);
  EXPECT_TRUE(store.wanted(keys_between(400, 410)).empty());
}

TEST(FeatureStore, OnDiskOnlyMemoryHoldsNoRows) {
  const test::TempDir dir;
  FeatureStore store(
      {.memory_bytes = 1 << 20, .disk_bytes = 8 << 20, .directory = dir.path(), .rows_in_memory = false});
  store.reset(1000);
  keep(store, keys_between(0, 9000), 1000);
  const auto now = store.statistics();
  EXPECT_EQ(now.rows_in_memory, 0);
  EXPECT_EQ(now.rows_on_disk,
            (1 << 19) / static_cast<std::int64_t>(kIndexBytes));  // half the memory is for their index
  EXPECT_EQ(count_of(fetch_checked(store, keys_between(0, 9000), 1000)), now.rows_on_disk);
}

TEST(FeatureStore, ARowIsWrittenOnce) {
  FeatureStore store({.memory_bytes = 1 << 20, .directory = {}});
  store.reset(100);
  const std::vector<FeatureKey> keys{{1, 0}, {1, 1}, {1, 0}};
  keep(store, keys, 100);
  EXPECT_EQ(store.statistics().rows_in_memory, 2);
  EXPECT_THAT(store.wanted(std::vector<FeatureKey>{{1, 1}, {2, 0}, {1, 0}, {1, 2}}), testing::ElementsAre(1, 3));
  keep(store, {{1, 0}, {2, 0}}, 100, 99);
  fetch_checked(store, {{1, 0}, {1, 1}}, 100);
  EXPECT_EQ(count_of(fetch_checked(store, {{2, 0}, {3, 0}}, 100, 99)), 1);
}

TEST(FeatureStore, BudgetsTooSmallForARowAreAWarningOnce) {
  const test::TempDir dir;
  testing::internal::CaptureStderr();
  FeatureStore store({.memory_bytes = 5000, .disk_bytes = 5000, .directory = dir.path()});
  store.reset(1 << 20);
  store.reset(2 << 20);
  const auto log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("leave no room for a row of 1.0 MiB"));
  EXPECT_EQ(log.find("warning"), log.rfind("warning"));
  keep(store, {{0, 0}}, 2 << 20);
  EXPECT_EQ(count_of(fetch_checked(store, {{0, 0}}, 2 << 20)), 0);
}

TEST(FeatureStore, TheIndexTakesNoMoreThanIsCountedForIt) {
  if (kHasAddressSanitizer) GTEST_SKIP() << "malloc() is another one";
  constexpr std::int64_t kRows = 200'000;
  const test::TempDir dir;
  FeatureStore store(
      {.memory_bytes = 64 << 20, .disk_bytes = 64 << 20, .directory = dir.path(), .rows_in_memory = false});
  store.reset(8);
  const auto keys = keys_between(0, kRows);
  const Bytes rows(kRows * 8);
  const auto taken = [] {
    const auto now = ::mallinfo2();
    return now.uordblks + now.hblkhd;
  };
  const auto before = taken();
  for (std::int64_t begin = 0; begin < kRows; begin += 1000)
    store.keep(std::span(keys).subspan(begin, 1000), rows.data());
  ASSERT_EQ(store.statistics().rows_on_disk, kRows);
  store.read_ahead(keys);
  const auto after = taken();
  if (after == before) GTEST_SKIP() << "malloc() tells nothing";
  EXPECT_LE(after - before, kRows * kIndexBytes);
  EXPECT_GE(after - before, kRows * kIndexBytes / 2);
}

TEST(FeatureStore, LargerRowsAreDroppedOnlyIfBothBudgetsAreFull) {
  const test::TempDir dir;
  const FeatureStoreOptions options{.memory_bytes = 1 << 20, .disk_bytes = 1 << 20, .directory = dir.path()};
  FeatureStore store(options);
  store.reset(1000);
  keep(store, keys_between(0, 3000), 1000);
  const Bytes made(256 * 3000);
  store.change(3000, [&](const std::byte*, std::span<const FeatureKey>) { return made.data(); });
  const auto after = store.statistics();
  EXPECT_GE(after.rows_in_memory, 240);  // of 3096 bytes in 3/4 of 1 MiB
  EXPECT_EQ(after.rows_on_disk, (1 << 20) / 3008);
  expect_budgets_kept(store, options);
}

TEST(FeatureStore, WithinTheBudgetsAtEachMomentOfAChange) {
  const test::TempDir dir;
  for (const std::uint64_t new_bytes : {500U, 1000U, 2500U}) {
    const FeatureStoreOptions options{.memory_bytes = 1 << 20, .disk_bytes = 1 << 20, .directory = dir.path()};
    FeatureStore store(options);
    store.reset(1000);
    keep(store, keys_between(0, 3000), 1000);
    Bytes made;
    std::int64_t rows = 0;
    store.change(new_bytes, [&](const std::byte*, std::span<const FeatureKey> keys) -> const std::byte* {
      expect_budgets_kept(store, options);
      rows += std::ssize(keys);
      made.assign(keys.size() * new_bytes, std::byte{7});
      return made.data();
    });
    expect_budgets_kept(store, options);
    EXPECT_GT(rows, 1600);
    store.read_ahead(keys_between(0, 3000));
    expect_budgets_kept(store, options);
  }
}

// Small rows, whose index takes most of the memory, become large ones.
TEST(FeatureStore, WhileRowsGrowTheIndexOfThoseOnDiskStillCounts) {
  const test::TempDir dir;
  const FeatureStoreOptions options{.memory_bytes = 1 << 20, .disk_bytes = 1 << 20, .directory = dir.path()};
  FeatureStore store(options);
  store.reset(12);
  keep(store, keys_between(0, 20'000), 12);
  ASSERT_GT(store.statistics().rows_on_disk, 2000);
  const Bytes made(256 * 4000);
  store.change(4000, [&](const std::byte*, std::span<const FeatureKey>) {
    expect_budgets_kept(store, options);
    return made.data();
  });
  expect_budgets_kept(store, options);
}

TEST(FeatureStore, WhatTheTransformThrowsLeavesAnEmptyStore) {
  FeatureStore store({.memory_bytes = 1 << 20, .directory = {}});
  store.reset(100);
  keep(store, keys_between(0, 600), 100);
  int calls = 0;
  EXPECT_THROW(store.change(200,
                            [&](const std::byte*, std::span<const FeatureKey>) -> const std::byte* {
                              static const Bytes kRows(256 * 200);
                              if (++calls == 2) throw std::runtime_error("out of memory");
                              return kRows.data();
                            }),
               std::runtime_error);
  EXPECT_EQ(store.statistics().rows_in_memory, 0);
  EXPECT_EQ(count_of(fetch_checked(store, keys_between(0, 10), 200)), 0);
  keep(store, keys_between(0, 10), 200);
  EXPECT_EQ(count_of(fetch_checked(store, keys_between(0, 10), 200)), 10);
}

TEST(FeatureStore, ARowIsNoHitBeforeItIsWhollyWritten) {
  constexpr std::uint64_t kRow = 50'000;
  const test::TempDir dir;
  FeatureStore store({.memory_bytes = 8 << 20, .disk_bytes = 8 << 20, .directory = dir.path()});
  const auto keys = keys_between(0, 200);
  const Bytes rows = test::rows_of(keys, kRow);
  for (int round = 0; round < 3; ++round) {
    store.reset(kRow);
    const std::jthread writer([&] { store.keep(keys, rows.data()); });
    Bytes found_rows(rows.size());
    for (std::int64_t found = 0; found < 200;) {
      const auto found_now = store.fetch(keys, found_rows.data());
      found = count_of(found_now);
      for (std::size_t i = 0; i < keys.size(); ++i) {
        if (!found_now[i]) continue;
        ASSERT_EQ(std::memcmp(found_rows.data() + i * kRow, rows.data() + i * kRow, kRow), 0) << i;
      }
    }
  }
}

TEST(FeatureStore, ThreadsFetchAndKeepAtOnce) {
  constexpr std::uint64_t kRow = 700;
  const test::TempDir dir;
  const FeatureStoreOptions options{.memory_bytes = 300'000, .disk_bytes = 200'000, .directory = dir.path()};
  FeatureStore store(options);
  store.reset(kRow);
  std::atomic<std::int64_t> asked = 0;
  {
    std::vector<std::jthread> threads;
    for (std::uint32_t seed = 0; seed < 4; ++seed) {
      threads.emplace_back([&, seed] {
        std::mt19937 random(seed);
        for (int call = 0; call < 150; ++call) {
          std::vector<FeatureKey> keys(16);
          for (auto& key : keys) key = {static_cast<std::int64_t>(random() % 900), 0};
          fetch_checked(store, keys, kRow);
          asked += std::ssize(keys);
          keep(store, keys, kRow);
          if (call % 10 == 0) store.read_ahead(keys);
          if (call % 10 == 0) expect_budgets_kept(store, options);
        }
      });
    }
  }
  const auto now = store.statistics();
  EXPECT_EQ(now.hits + now.misses, asked);
  EXPECT_GT(now.rows_on_disk, 100);
  EXPECT_EQ(count_of(fetch_checked(store, keys_between(0, 900), kRow)), now.rows_in_memory + now.rows_on_disk);
  EXPECT_EQ(now.damaged, 0);
}

}  // namespace
}  // namespace sluice::data
