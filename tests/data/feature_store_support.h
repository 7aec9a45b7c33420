// feature_store_support: keeps, fetches and checks rows of the tests (feature_support.h).
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "data/feature_store.h"
#include "data/feature_support.h"

namespace sluice::test {

inline std::int64_t count_of(const std::vector<bool>& found) { return std::ranges::count(found, true); }

// Checks that rows of these keys, if found, are those of `salt`, and that the others are unchanged.
inline std::vector<bool> fetch_checked(data::FeatureStore& store, const std::vector<data::FeatureKey>& keys,
                                       std::uint64_t row_bytes, std::uint64_t salt = 0) {
  Bytes rows(keys.size() * row_bytes, std::byte{0x5a});
  const auto found = store.fetch(keys, rows.data());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const Bytes row(rows.begin() + static_cast<std::ptrdiff_t>(i * row_bytes),
                    rows.begin() + static_cast<std::ptrdiff_t>((i + 1) * row_bytes));
    EXPECT_EQ(row, found[i] ? row_of(keys[i], row_bytes, salt) : Bytes(row_bytes, std::byte{0x5a})) << keys[i].sample;
  }
  return found;
}

inline void keep(data::FeatureStore& store, const std::vector<data::FeatureKey>& keys, std::uint64_t row_bytes,
                 std::uint64_t salt = 0) {
  store.keep(keys, rows_of(keys, row_bytes, salt).data());
}

inline void expect_budgets_kept(const data::FeatureStore& store, const data::FeatureStoreOptions& options) {
  const auto now = store.statistics();
  EXPECT_LE(now.memory_bytes, options.memory_bytes);
  EXPECT_LE(now.disk_bytes, options.disk_bytes);
  // Another thread may create the file between the two calls.
  for (const auto& file : unnamed_files(options.directory)) {
    const auto size = size_of(file);
    EXPECT_THAT(size, testing::AnyOf(now.disk_bytes, store.statistics().disk_bytes));
  }
}

}  // namespace sluice::test
