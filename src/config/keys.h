// keys: helpers for schema rows, and the tables that have files of their own. Internal to schema.cpp and those files.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <vector>

#include "config/field.h"

namespace sluice::config::internal {

using Keys = std::vector<Key>;

inline Limit between(std::int64_t low, std::int64_t high) { return IntegerRange{low, high}; }
inline Limit at_least(std::int64_t low) { return IntegerRange{low, kNoLimit}; }
inline Limit real_at_least(double low) { return RealRange{.low = low}; }
inline Limit above(double low) { return RealRange{.low = low, .low_open = true}; }
inline Limit real_between(double low, double high) { return RealRange{.low = low, .high = high}; }
inline Limit fraction(double low = 0) { return RealRange{.low = low, .high = 1, .high_open = true}; }
inline Limit any() { return std::monostate{}; }
inline Limit words(Words list) { return list; }

inline Keys joined(std::initializer_list<Keys (*)()> tables) {
  Keys all;
  for (auto* rows_of : tables) std::ranges::move(rows_of(), std::back_inserter(all));
  return all;
}

[[nodiscard]] Keys log_keys();
[[nodiscard]] Keys lora_keys();
[[nodiscard]] Keys ps_keys();
[[nodiscard]] Keys replica_keys();
[[nodiscard]] Keys text_keys();
[[nodiscard]] Keys train_keys();

}  // namespace sluice::config::internal
