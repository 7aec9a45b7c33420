// feature_tensors: rows that identify their key, and caches for them, for tests of the feature cache with tensors.
#pragma once

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "data/feature_cache.h"
#include "data/feature_support.h"
#include "support/files.h"

namespace sluice::test {

inline constexpr std::int64_t kChannels = 3;
inline constexpr std::int64_t kSide = 8;
inline const std::vector<std::int64_t> kSizes{kChannels, kSide, kSide};

// Images that identify their sample and view.
inline at::Tensor inputs_of(const std::vector<data::FeatureKey>& keys, at::ScalarType type = at::kFloat) {
  std::vector<at::Tensor> rows;
  for (const auto& key : keys) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(data::hash_of(key));
    rows.push_back(at::randn(kSizes, generator, at::dtype(type)));
  }
  return at::stack(rows);
}

inline std::vector<std::int64_t> sizes_with(std::int64_t rows, at::IntArrayRef sizes = kSizes) {
  std::vector<std::int64_t> all{rows};
  all.insert(all.end(), sizes.begin(), sizes.end());
  return all;
}

inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor left = a.contiguous();
  const at::Tensor right = b.contiguous();
  return left.scalar_type() == right.scalar_type() && left.sizes() == right.sizes() &&
         std::memcmp(left.data_ptr(), right.data_ptr(), left.nbytes()) == 0;
}

inline at::Tensor fetched(data::FeatureCache& cache, const std::vector<data::FeatureKey>& keys,
                          at::IntArrayRef sizes = kSizes, at::ScalarType type = at::kFloat) {
  at::Tensor rows = at::zeros(sizes_with(std::ssize(keys), sizes), type);
  EXPECT_THAT(cache.fetch(keys, rows), testing::Each(true));
  return rows;
}

inline std::int64_t hits_of(data::FeatureCache& cache, const std::vector<data::FeatureKey>& keys,
                            at::IntArrayRef sizes = kSizes, at::ScalarType type = at::kFloat) {
  at::Tensor rows = at::zeros(sizes_with(std::ssize(keys), sizes), type);
  return std::ranges::count(cache.fetch(keys, rows), true);
}

inline std::vector<data::FeatureCacheOptions> stores(const TempDir& dir) {
  return {{.memory_bytes = 1 << 20},
          {.memory_bytes = 1 << 20, .disk_bytes = 1 << 20, .directory = dir.path(), .rows_in_memory = false},
          {.memory_bytes = 80'000, .disk_bytes = 1 << 20, .directory = dir.path()}};
}

}  // namespace sluice::test
