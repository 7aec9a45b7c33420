// feature_key: identifies a row of the feature cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/rng.h"

namespace sluice::data {

// FeatureKey::view of test samples, which are numbered separately.
inline constexpr int kTestView = -1;

struct FeatureKey {
  std::int64_t sample = 0;  // index in the data set
  int view = 0;             // augmented view of the sample (SampleReader::view_in())
  friend bool operator==(const FeatureKey&, const FeatureKey&) = default;
};

[[nodiscard]] inline std::vector<FeatureKey> keys_of(std::span<const std::int64_t> samples, int view) {
  std::vector<FeatureKey> keys;
  keys.reserve(samples.size());
  for (const std::int64_t sample : samples) keys.push_back({sample, view});
  return keys;
}

[[nodiscard]] constexpr std::uint64_t hash_of(const FeatureKey& key) {
  return splitmix64(static_cast<std::uint64_t>(key.sample) + splitmix64(static_cast<std::uint64_t>(key.view) + 1));
}

struct FeatureKeyHash {
  std::size_t operator()(const FeatureKey& key) const noexcept { return hash_of(key); }
};

}  // namespace sluice::data
