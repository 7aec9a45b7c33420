#include <gmock/gmock.h>

#include <algorithm>
#include <thread>

#include "data/feature_store.h"
#include "data/feature_store_support.h"
#include "support/files.h"

namespace sluice::data {
namespace {

using test::Bytes;
using test::count_of;
using test::fetch_checked;
using test::keep;
using test::keys_between;
using testing::HasSubstr;

TEST(FeatureStoreFaults, ADamagedRowIsAMissWithOneWarningAndIsWrittenAgain) {
  const test::TempDir dir;
  FeatureStore store(
      {.memory_bytes = 1 << 20, .disk_bytes = 20 * 1008, .directory = dir.path(), .rows_in_memory = false});
  store.reset(1000);
  keep(store, keys_between(0, 20), 1000);
  const auto file = test::unnamed_files(dir.path()).at(0);
  test::damage(file, 3 * 1008 + 10, 1);
  test::damage(file, 7 * 1008 + 1000, 8);
  testing::internal::CaptureStderr();
  const auto found = fetch_checked(store, keys_between(0, 20), 1000);
  const auto log = testing::internal::GetCapturedStderr();
  for (std::int64_t sample = 0; sample < 20; ++sample) EXPECT_EQ(found[sample], sample != 3 && sample != 7);
  EXPECT_THAT(log, HasSubstr("row of sample 3, view 0"));
  EXPECT_EQ(log.find("warning"), log.rfind("warning")) << log;
  EXPECT_EQ(store.statistics().damaged, 2);
  EXPECT_EQ(store.statistics().rows_on_disk, 18);
  EXPECT_THAT(store.wanted(keys_between(0, 20)), testing::ElementsAre(3, 7));
  keep(store, keys_between(0, 20), 1000);
  EXPECT_EQ(count_of(fetch_checked(store, keys_between(0, 20), 1000)), 20);
}

TEST(FeatureStoreFaults, DamagedRowsAreDroppedByAChange) {
  const test::TempDir dir;
  FeatureStore store(
      {.memory_bytes = 1 << 20, .disk_bytes = 1 << 20, .directory = dir.path(), .rows_in_memory = false});
  store.reset(1000);
  keep(store, keys_between(0, 20), 1000);
  test::damage(test::unnamed_files(dir.path()).at(0), 3 * 1008 + 10, 1);
  testing::internal::CaptureStderr();
  Bytes same;
  store.change(1000, [&](const std::byte* rows, std::span<const FeatureKey> keys) -> const std::byte* {
    same.assign(rows, rows + keys.size() * 1000);
    return same.data();
  });
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("row of sample 3, view 0"));
  const auto found = fetch_checked(store, keys_between(0, 20), 1000);
  for (std::int64_t sample = 0; sample < 20; ++sample) EXPECT_EQ(found[sample], sample != 3);
}

FeatureStore::Transform copy_of_rows(Bytes& made, std::uint64_t row_bytes) {
  return [&made, row_bytes](const std::byte* rows, std::span<const FeatureKey> keys) {
    made.assign(rows, rows + keys.size() * row_bytes);
    return static_cast<const std::byte*>(made.data());
  };
}

void go_on_without_the_disk(const std::filesystem::path& dir) {
  constexpr std::uint64_t kRow = 10'000;
  FeatureStore store({.memory_bytes = 1 << 20, .disk_bytes = 64 << 20, .directory = dir});
  store.reset(kRow);
  std::int64_t most_on_disk = 0;
  std::int64_t first = 0;  // rows in memory before the disk was off
  for (std::int64_t sample = 0; sample < 1000; sample += 4) {
    const auto now = store.statistics();
    most_on_disk = std::max(most_on_disk, now.rows_on_disk);
    if (!now.disk_is_off) first = now.rows_in_memory;
    if (sample == 200) store.read_ahead(keys_between(0, 200));
    keep(store, keys_between(sample, sample + 4), kRow);
  }
  const auto now = store.statistics();
  EXPECT_TRUE(now.disk_is_off);
  EXPECT_EQ(now.disk_bytes, 0U);
  EXPECT_EQ(now.rows_on_disk, 0);
  EXPECT_GT(most_on_disk, 100);
  EXPECT_GT(now.rows_in_memory, first) << "the disk's share of the memory is for rows now";
  EXPECT_LE(now.memory_bytes, 1U << 20);
  EXPECT_EQ(count_of(fetch_checked(store, keys_between(0, first), kRow)), first);
  EXPECT_EQ(count_of(fetch_checked(store, keys_between(0, 1000), kRow)), now.rows_in_memory);
  Bytes made;
  store.change(kRow, copy_of_rows(made, kRow));
  EXPECT_EQ(count_of(fetch_checked(store, keys_between(0, 1000), kRow)), now.rows_in_memory);
}

TEST(FeatureStoreFaults, AFullDiskTurnsTheDiskOffWithOneWarningAndNothingElseChanges) {
  const test::TempDir dir;
  const int status = test::in_child([&] {
    test::limit_files(3'000'000);
    const auto log = test::log_of([&] { go_on_without_the_disk(dir.path()); });
    EXPECT_EQ(test::warnings_in(log), 1) << log;
    return 0;
  });
  EXPECT_EQ(status, 0);
}

TEST(FeatureStoreFaults, ADiskThatFillsUpDuringAChangeLeavesTheRowsInMemory) {
  const test::TempDir dir;
  const int status = test::in_child([&] {
    FeatureStore store({.memory_bytes = 1 << 20, .disk_bytes = 64 << 20, .directory = dir.path()});
    store.reset(10'000);
    keep(store, keys_between(0, 400), 10'000);
    EXPECT_GT(store.statistics().rows_on_disk, 300);
    test::limit_files(4'000'000);
    const Bytes made(256 * 20'000);
    const auto log = test::log_of(
        [&] { store.change(20'000, [&](const std::byte*, std::span<const FeatureKey>) { return made.data(); }); });
    EXPECT_THAT(log, HasSubstr("File too large"));
    EXPECT_EQ(test::warnings_in(log), 1) << log;
    const auto now = store.statistics();
    EXPECT_TRUE(now.disk_is_off);
    EXPECT_EQ(now.rows_on_disk, 0);
    EXPECT_EQ(now.disk_bytes, 0U);
    EXPECT_GT(now.rows_in_memory, 30);
    EXPECT_LE(now.memory_bytes, 1U << 20);
    return 0;
  });
  EXPECT_EQ(status, 0);
}

void use_by_threads(FeatureStore& store, std::uint64_t row_bytes) {
  std::vector<std::jthread> threads;
  for (std::int64_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&store, row_bytes, thread] {
      for (std::int64_t sample = thread * 100; sample < (thread + 1) * 100; sample += 2) {
        keep(store, keys_between(sample, sample + 2), row_bytes);
        fetch_checked(store, keys_between(sample - 8, sample + 2), row_bytes);
        store.read_ahead(keys_between(sample - 8, sample + 10));
      }
    });
  }
}

TEST(FeatureStoreFaults, TheDiskGoesOffUnderSeveralThreads) {
  constexpr std::uint64_t kRow = 10'000;
  const test::TempDir dir;
  const int status = test::in_child([&] {
    test::limit_files(2'000'000);
    const auto log = test::log_of([&] {
      FeatureStore store({.memory_bytes = 300'000, .disk_bytes = 64 << 20, .directory = dir.path()});
      store.reset(kRow);
      use_by_threads(store, kRow);
      const auto now = store.statistics();
      EXPECT_TRUE(now.disk_is_off);
      EXPECT_EQ(now.rows_on_disk, 0);
      EXPECT_EQ(now.damaged, 0);
      EXPECT_LE(now.memory_bytes, 300'000U);
      EXPECT_EQ(count_of(fetch_checked(store, keys_between(0, 400), kRow)), now.rows_in_memory);
    });
    EXPECT_EQ(test::warnings_in(log), 1) << log;
    return 0;
  });
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace sluice::data
