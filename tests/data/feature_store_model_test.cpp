#include <gtest/gtest.h>

#include <cstring>
#include <iterator>
#include <random>
#include <set>

#include "data/feature_store.h"
#include "data/feature_store_support.h"
#include "support/files.h"

namespace sluice::data {
namespace {

using test::Bytes;

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

// A store and the set of its keys. Rows contain their key and the number of changes.
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
  void expect_budgets_kept() const { test::expect_budgets_kept(store_, options_); }

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
    store_.change(row_bytes_, [&](const std::byte* rows, std::span<const FeatureKey> keys) -> const std::byte* {
      made.clear();
      for (const FeatureKey& key : keys) {
        EXPECT_EQ(key, key_of(rows));
        EXPECT_EQ(Bytes(rows, rows + old_bytes), named_row(key, old_bytes, generation_));
        EXPECT_TRUE(seen.emplace(key.sample, key.view).second) << "given twice";
        std::ranges::copy(named_row(key, row_bytes_, generation_ + 1), std::back_inserter(made));
        rows += old_bytes;
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

}  // namespace
}  // namespace sluice::data
