// pair_map: a map from two 32-bit numbers to a value for the inner loops. Open addressing, at most half full.
// Threads: find() any.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

namespace sluice::text {

template <typename Value>
class PairMap {
 public:
  explicit PairMap(std::size_t expected = 0) : slots_(std::bit_ceil(2 * expected + 2)) {}

  void set(std::int32_t first, std::int32_t second, Value value) {
    if (2 * (count_ + 1) > slots_.size()) grow();
    Slot& slot = slot_of(key_of(first, second));
    count_ += slot.key == kEmpty ? 1 : 0;
    slot = {key_of(first, second), value};
  }
  // Null: the key is missing.
  [[nodiscard]] const Value* find(std::int32_t first, std::int32_t second) const {
    const Slot& slot = const_cast<PairMap*>(this)->slot_of(key_of(first, second));
    return slot.key == kEmpty ? nullptr : &slot.value;
  }

 private:
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};  // no key: numbers are not negative
  struct Slot {
    std::uint64_t key = kEmpty;
    Value value{};
  };

  static std::uint64_t key_of(std::int32_t first, std::int32_t second) {
    return static_cast<std::uint64_t>(first) << 32 | static_cast<std::uint32_t>(second);
  }
  Slot& slot_of(std::uint64_t key) {
    const std::size_t mask = slots_.size() - 1;
    std::size_t i = (key * 0x9e3779b97f4a7c15U >> 32) & mask;
    while (slots_[i].key != key && slots_[i].key != kEmpty) i = (i + 1) & mask;
    return slots_[i];
  }
  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.key != kEmpty) slot_of(slot.key) = slot;
    }
  }

  std::vector<Slot> slots_;
  std::size_t count_ = 0;
};

}  // namespace sluice::text
