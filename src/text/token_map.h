// token_map: a map from bytes to token ids for the inner loops: one table, one pool of bytes, no allocation in find().
// Threads: find() any.
#pragma once

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::text {

using TokenId = std::int32_t;
inline constexpr TokenId kNoToken = -1;

class TokenMap {
 public:
  explicit TokenMap(std::size_t expected = 0) : slots_(std::bit_ceil(expected * 2 + 16)) {}

  // Keeps the first id of a key. Returns whether the key is new.
  bool add(std::string_view key, TokenId id) {
    if (2 * (count_ + 1) > slots_.size()) grow();
    Slot* slot = slot_of(key, hash_of(key));
    if (slot->id != kNoToken) return false;
    *slot = {static_cast<std::uint32_t>(hash_of(key)), static_cast<std::uint32_t>(pool_.size()),
             static_cast<std::uint32_t>(key.size()), id};
    pool_.append(key);
    ++count_;
    longest_ = std::max(longest_, key.size());
    return true;
  }

  [[nodiscard]] TokenId find(std::string_view key) const {
    return const_cast<TokenMap*>(this)->slot_of(key, hash_of(key))->id;
  }
  [[nodiscard]] std::size_t size() const { return count_; }
  [[nodiscard]] std::size_t longest() const { return longest_; }  // bytes of the longest key

  static std::uint64_t hash_of(std::string_view key) { return XXH3_64bits(key.data(), key.size()); }

 private:
  struct Slot {
    std::uint32_t hash = 0, offset = 0, size = 0;
    TokenId id = kNoToken;
  };

  Slot* slot_of(std::string_view key, std::uint64_t hash) {
    const std::size_t mask = slots_.size() - 1;
    for (std::size_t i = hash & mask;; i = (i + 1) & mask) {
      Slot& slot = slots_[i];
      if (slot.id == kNoToken || (slot.hash == static_cast<std::uint32_t>(hash) && slot.size == key.size() &&
                                  key == std::string_view(pool_).substr(slot.offset, slot.size))) {
        return &slot;
      }
    }
  }

  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.id == kNoToken) continue;
      const std::string_view key = std::string_view(pool_).substr(slot.offset, slot.size);
      *slot_of(key, hash_of(key)) = slot;
    }
  }

  std::vector<Slot> slots_;
  std::string pool_;
  std::size_t count_ = 0;
  std::size_t longest_ = 0;
};

}  // namespace sluice::text
