#include "data/feature_store.h"

#include <gmock/gmock.h>
#include <malloc.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <stdexcept>
#include <thread>

#include "core/sanitizers.h"
#include "data/feature_support.h"
#include "support/files.h"

namespace sluice::data {
namespace {

using test::Bytes;
using test::keys_between;
using test::rows_of;
using testing::HasSubstr;

std::int64_t count_of(const std::vector<bool>& found) { return std::ranges::count(found, true); }

// The rows there are of these keys, checked to be those of `salt`, and the others untouched.
std::vector<bool> fetch_checked(FeatureStore& store, const std::vector<FeatureKey>& keys, std::uint64_t row_bytes,
                                std::uint64_t salt = 0) {
  Bytes rows(keys.size() * row_bytes, std::byte{0x5a});
  const auto found = store.fetch(keys, rows.data());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const Bytes row(rows.begin() + static_cast<std::ptrdiff_t>(i * row_bytes),
                    rows.begin() + static_cast<std::ptrdiff_t>((i + 1) * row_bytes));
    EXPECT_EQ(row, found[i] ? test::row_of(keys[i], row_bytes, salt) : Bytes(row_bytes, std::byte{0x5a}))
        << keys[i].sample;
  }
  return found;
}

void keep(FeatureStore& store, const std::vector<FeatureKey>& keys, std::uint64_t row_bytes, std::uint64_t salt = 0) {
  store.keep(keys, rows_of(keys, row_bytes, salt).data());
}

// A row that names its key and its generation.
Bytes named_row(const FeatureKey& key, std::uint64_t row_bytes, std::uint8_t last) {
  Bytes row(row_bytes, std::byte{last});
  std::memcpy(row.data(), &key.sample, sizeof key.sample);
  std::memcpy(row.data() + sizeof key.sample, &key.view, sizeof key.view);
  return row;
}

FeatureKey key_of(const std::byte* named) {
  FeatureKey key;
  std::memcpy(&key.sample, named, sizeof key.sample);
  std::memcpy(&key.view, named + sizeof key.sample, sizeof key.view);
  return key;
}

class Budgets {
 public:
  Budgets(FeatureStoreOptions options) : options_(std::move(options)) {}  // NOLINT(google-explicit-constructor): test
  void expect_kept(const FeatureStore& store) const {
    const auto now = store.statistics();
    EXPECT_LE(now.memory_bytes, options_.memory_bytes);
    EXPECT_LE(now.disk_bytes, options_.disk_bytes);
    for (const auto& file : test::unnamed_files(options_.directory)) EXPECT_EQ(test::size_of(file), now.disk_bytes);
  }

 private:
  FeatureStoreOptions options_;
};

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

// kIndexBytes is what malloc() hands out and what the list of keys takes, measured.
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

// A store beside the set of keys that it keeps; the rows name their key and how often all rows were replaced.
class StoreAndModel {
 public:
  StoreAndModel(const FeatureStoreOptions& options, std::mt19937& random)
      : options_(options), random_(random), store_(options) {
    reset();
  }

  void call_something() {
    const auto what = random_() % 16;
    if (what == 0) return reset();
    if (what == 1) return change();
    if (what < 8) return keep();
    if (what < 10) return store_.read_ahead(some_keys());
    fetch();
  }
  void expect_budgets_kept() const { Budgets(options_).expect_kept(store_); }

 private:
  std::vector<FeatureKey> some_keys() {
    std::vector<FeatureKey> keys(random_() % 20);
    for (auto& key : keys) key = {static_cast<std::int64_t>(random_() % 150), static_cast<int>(random_() % 2)};
    return keys;
  }

  bool is_there(const FeatureKey& key) {
    Bytes row(row_bytes_);
    return store_.fetch(std::span(&key, 1), row.data())[0];
  }

  [[nodiscard]] std::size_t rows_there() const {
    const auto now = store_.statistics();
    return static_cast<std::size_t>(now.rows_in_memory + now.rows_on_disk);
  }

  void reset() {
    row_bytes_ = 12 + random_() % 3000;
    ++generation_;
    store_.reset(row_bytes_);
    kept_.clear();
  }

  void change() {
    const std::uint64_t old_bytes = std::exchange(row_bytes_, 12 + random_() % 3000);
    std::set<std::pair<std::int64_t, int>> seen;
    Bytes made;
    store_.change(row_bytes_, [&](const std::byte* rows, std::int64_t count) -> const std::byte* {
      made.clear();
      for (; count > 0; --count, rows += old_bytes) {
        const FeatureKey key = key_of(rows);
        EXPECT_EQ(Bytes(rows, rows + old_bytes), named_row(key, old_bytes, generation_));
        EXPECT_TRUE(seen.emplace(key.sample, key.view).second) << "given twice";
        std::ranges::copy(named_row(key, row_bytes_, generation_ + 1), std::back_inserter(made));
      }
      return made.data();
    });
    ++generation_;
    EXPECT_EQ(seen, kept_);
    if (row_bytes_ <= old_bytes) {
      EXPECT_EQ(rows_there(), kept_.size());
    }
    std::erase_if(kept_, [this](const auto& key) { return !is_there({key.first, key.second}); });
    EXPECT_EQ(rows_there(), kept_.size());
  }

  void keep() {
    const auto keys = some_keys();
    Bytes rows;
    for (const auto& key : keys) std::ranges::copy(named_row(key, row_bytes_, generation_), std::back_inserter(rows));
    store_.keep(keys, rows.data());
    for (const auto& key : keys) {
      if (is_there(key)) kept_.emplace(key.sample, key.view);
    }
    EXPECT_EQ(rows_there(), kept_.size());
  }

  void fetch() {
    const auto keys = some_keys();
    Bytes rows(keys.size() * row_bytes_, std::byte{0x5a});
    const auto found = store_.fetch(keys, rows.data());
    const std::byte* row = rows.data();
    for (std::size_t i = 0; i < keys.size(); ++i, row += row_bytes_) {
      EXPECT_EQ(found[i], kept_.contains({keys[i].sample, keys[i].view}));
      EXPECT_EQ(Bytes(row, row + row_bytes_),
                found[i] ? named_row(keys[i], row_bytes_, generation_) : Bytes(row_bytes_, std::byte{0x5a}));
    }
  }

  const FeatureStoreOptions options_;
  std::mt19937& random_;
  FeatureStore store_;
  std::uint64_t row_bytes_ = 0;
  std::uint8_t generation_ = 0;
  std::set<std::pair<std::int64_t, int>> kept_;
};

TEST(FeatureStore, AgreesWithASetOfKeysUnderRandomCalls) {
  std::mt19937 random(5);
  const test::TempDir dir;
  for (int trial = 0; trial < 80 && !HasFailure(); ++trial) {
    SCOPED_TRACE(trial);
    testing::internal::CaptureStderr();  // some budgets are too small for a row, which is said
    StoreAndModel both({.memory_bytes = random() % 200'000,
                        .disk_bytes = trial % 3 == 0 ? 0 : random() % 200'000,
                        .directory = dir.path(),
                        .rows_in_memory = trial % 5 != 0},
                       random);
    for (int call = 0; call < 80 && !HasFailure(); ++call) {
      both.call_something();
      both.expect_budgets_kept();
    }
    testing::internal::GetCapturedStderr();
  }
}

TEST(FeatureStore, LargerRowsAreDroppedOnlyWhereBothBudgetsAreFull) {
  const test::TempDir dir;
  const FeatureStoreOptions options{.memory_bytes = 1 << 20, .disk_bytes = 1 << 20, .directory = dir.path()};
  FeatureStore store(options);
  store.reset(1000);
  keep(store, keys_between(0, 3000), 1000);
  const Bytes made(256 * 3000);
  store.change(3000, [&](const std::byte*, std::int64_t) { return made.data(); });
  const auto after = store.statistics();
  EXPECT_GE(after.rows_in_memory, 240);  // of 3096 bytes in 3/4 of 1 MiB
  EXPECT_EQ(after.rows_on_disk, (1 << 20) / 3008);
  Budgets(options).expect_kept(store);
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
    store.change(new_bytes, [&](const std::byte*, std::int64_t count) -> const std::byte* {
      Budgets(options).expect_kept(store);
      rows += count;
      made.assign(static_cast<std::size_t>(count) * new_bytes, std::byte{7});
      return made.data();
    });
    Budgets(options).expect_kept(store);
    EXPECT_GT(rows, 1600);
    store.read_ahead(keys_between(0, 3000));
    Budgets(options).expect_kept(store);
  }
}

TEST(FeatureStore, WhatTheTransformThrowsLeavesAnEmptyStore) {
  FeatureStore store({.memory_bytes = 1 << 20, .directory = {}});
  store.reset(100);
  keep(store, keys_between(0, 600), 100);
  int calls = 0;
  EXPECT_THROW(store.change(200,
                            [&](const std::byte*, std::int64_t) -> const std::byte* {
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

TEST(FeatureStore, ADamagedRowIsAMissWithOneWarningAndIsWrittenAgain) {
  const test::TempDir dir;
  FeatureStore store(
      {.memory_bytes = 1 << 20, .disk_bytes = 1 << 20, .directory = dir.path(), .rows_in_memory = false});
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

TEST(FeatureStore, DamagedRowsAreDroppedByAChange) {
  const test::TempDir dir;
  FeatureStore store(
      {.memory_bytes = 1 << 20, .disk_bytes = 1 << 20, .directory = dir.path(), .rows_in_memory = false});
  store.reset(1000);
  keep(store, keys_between(0, 20), 1000);
  test::damage(test::unnamed_files(dir.path()).at(0), 3 * 1008 + 10, 1);
  testing::internal::CaptureStderr();
  Bytes same;
  store.change(1000, [&](const std::byte* rows, std::int64_t count) -> const std::byte* {
    same.assign(rows, rows + count * 1000);
    return same.data();
  });
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("row of sample 3, view 0"));
  const auto found = fetch_checked(store, keys_between(0, 20), 1000);
  for (std::int64_t sample = 0; sample < 20; ++sample) EXPECT_EQ(found[sample], sample != 3);
}

// 0 when everything goes on in memory after the file could not grow.
int goes_on_without_the_disk(const std::filesystem::path& dir) {
  constexpr std::uint64_t kRow = 10'000;
  testing::internal::CaptureStderr();
  FeatureStore store({.memory_bytes = 1 << 20, .disk_bytes = 64 << 20, .directory = dir});
  store.reset(kRow);
  std::int64_t most_on_disk = 0;
  std::int64_t in_memory = 0;
  for (std::int64_t sample = 0; sample < 1000; sample += 4) {
    const auto now = store.statistics();
    most_on_disk = std::max(most_on_disk, now.rows_on_disk);
    if (!now.disk_is_off) in_memory = now.rows_in_memory;
    if (sample == 200) store.read_ahead(keys_between(0, 200));
    keep(store, keys_between(sample, sample + 4), kRow);
  }
  const auto now = store.statistics();
  const std::string log = testing::internal::GetCapturedStderr();
  if (!now.disk_is_off || now.disk_bytes != 0 || now.rows_on_disk != 0) return 2;
  if (most_on_disk < 100) return 3;
  if (log.find("warning") == std::string::npos || log.find("warning") != log.rfind("warning")) return 4;
  if (now.rows_in_memory <= in_memory || now.memory_bytes > 1 << 20) return 5;  // the disk's share is for rows now
  const auto found = fetch_checked(store, keys_between(0, 1000), kRow);
  if (count_of(found) != now.rows_in_memory || count_of({found.begin(), found.begin() + in_memory}) != in_memory)
    return 6;
  Bytes made;
  store.change(kRow, [&](const std::byte* rows, std::int64_t count) -> const std::byte* {
    made.assign(rows, rows + count * static_cast<std::int64_t>(kRow));
    return made.data();
  });
  return store.statistics().rows_in_memory == now.rows_in_memory && !testing::Test::HasFailure() ? 0 : 7;
}

TEST(FeatureStore, AFullDiskTurnsTheDiskOffWithOneWarningAndNothingElseChanges) {
  const test::TempDir dir;
  const int status = test::in_child([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{3'000'000, 3'000'000};
    return ::setrlimit(RLIMIT_FSIZE, &limit) == 0 ? goes_on_without_the_disk(dir.path()) : 1;
  });
  EXPECT_EQ(status, 0);
}

// The disk fills up while a change is half done: larger rows need a larger file.
TEST(FeatureStore, ADiskThatFillsUpDuringAChangeLeavesTheRowsInMemory) {
  const test::TempDir dir;
  const int status = test::in_child([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    testing::internal::CaptureStderr();
    FeatureStore store({.memory_bytes = 1 << 20, .disk_bytes = 64 << 20, .directory = dir.path()});
    store.reset(10'000);
    keep(store, keys_between(0, 400), 10'000);
    if (store.statistics().rows_on_disk < 300) return 2;
    const rlimit limit{4'000'000, 4'000'000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const Bytes made(256 * 20'000);
    store.change(20'000, [&](const std::byte*, std::int64_t) { return made.data(); });
    const std::string log = testing::internal::GetCapturedStderr();
    const auto now = store.statistics();
    if (!now.disk_is_off || now.rows_on_disk != 0 || now.disk_bytes != 0) return 3;
    if (now.rows_in_memory < 30 || now.memory_bytes > 1 << 20) return 4;
    return log.find("warning") == log.rfind("warning") && log.find("File too large") != std::string::npos ? 0 : 5;
  });
  EXPECT_EQ(status, 0);
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
          if (call % 10 == 0) Budgets(options).expect_kept(store);
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

// Another thread's write fails while these keep and fetch.
TEST(FeatureStore, TheDiskGoesOffUnderSeveralThreads) {
  constexpr std::uint64_t kRow = 10'000;
  const test::TempDir dir;
  const int status = test::in_child([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{2'000'000, 2'000'000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    testing::internal::CaptureStderr();
    FeatureStore store({.memory_bytes = 300'000, .disk_bytes = 64 << 20, .directory = dir.path()});
    store.reset(kRow);
    {
      std::vector<std::jthread> threads;
      for (std::int64_t thread = 0; thread < 4; ++thread) {
        threads.emplace_back([&, thread] {
          for (std::int64_t sample = thread * 100; sample < (thread + 1) * 100; sample += 2) {
            keep(store, keys_between(sample, sample + 2), kRow);
            fetch_checked(store, keys_between(sample - 8, sample + 2), kRow);
            store.read_ahead(keys_between(sample - 8, sample + 10));
          }
        });
      }
    }
    const std::string log = testing::internal::GetCapturedStderr();
    const auto now = store.statistics();
    if (!now.disk_is_off || now.rows_on_disk != 0 || now.damaged != 0 || now.memory_bytes > 300'000) return 2;
    if (log.find("warning") != log.rfind("warning")) return 3;
    const auto found = count_of(fetch_checked(store, keys_between(0, 400), kRow));
    return found == now.rows_in_memory && !testing::Test::HasFailure() ? 0 : 4;
  });
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace sluice::data
