// feature_slabs: rows of bytes in memory, in slabs of many rows each. Rows are only added; reset() drops all of them.
// A row never crosses a slab. A slab is a mapping of its own, a 16th of the limit and at most 64 MiB large (at least a
// row); the last one is as much smaller as the limit asks for.
// Counted for a slab: its pages, and kIndexBytes for each row that it can hold, for whoever finds the rows again.
// Threads: one at a time; the bytes of a row belong to who reserved it, and do not move.
// Errors: none is thrown for lack of memory; reserve() is then empty, with one warning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "data/mapped_memory.h"

namespace sluice::data {

// What the index takes for a row, wherever the row is. A node of the hash map with its block of malloc(): 48 bytes;
// buckets: 16 after growing; the row's position in the list of what is read ahead: 24. Rounded up.
inline constexpr std::uint64_t kIndexBytes = 96;

class FeatureSlabs {
 public:
  struct Slot {
    std::uint32_t slab = 0;
    std::uint32_t row = 0;
  };

  // Drops all rows; those to come have row_bytes each (> 0). limit: of what is counted.
  void reset(std::uint64_t row_bytes, std::uint64_t limit);
  // What is counted now stays, even if it is more.
  void set_limit(std::uint64_t limit);

  [[nodiscard]] std::optional<Slot> reserve();
  [[nodiscard]] bool full() const { return full_; }  // a reserve() has failed, and will until something is given back
  [[nodiscard]] std::byte* row(Slot slot) const { return slabs_[slot.slab].memory.data() + slot.row * row_bytes_; }
  [[nodiscard]] bool could_hold_one() const { return charge_of(1) <= limit_; }

  [[nodiscard]] std::uint64_t mapped_bytes() const { return mapped_; }
  [[nodiscard]] std::uint64_t charged_bytes() const { return charged_; }

  // Replaces rows by rows of another size, in the memory that they have: between these two calls the slots handed out
  // before are old ones, read with old_row(), and new rows come from reserve(), which also uses what release_old() has
  // freed and never touches an old row that is not released.
  void begin_change(std::uint64_t row_bytes, std::uint64_t limit);
  void end_change();  // releases what is left
  [[nodiscard]] const std::byte* old_row(Slot slot) const {
    return slabs_[slot.slab].memory.data() + slot.row * old_row_bytes_;
  }
  // The old rows up to and with this one are not needed any more.
  void release_old(Slot last);

 private:
  struct Slab {
    MappedMemory memory;         // empty: given back during a change
    std::uint32_t capacity = 0;  // rows that it may hold
    std::uint32_t used = 0;      // rows reserved, from the front
    std::uint32_t granted = 0;   // rows whose index is counted, at least the capacity
  };

  [[nodiscard]] std::uint64_t charge_of(std::uint64_t rows) const;
  [[nodiscard]] std::uint64_t rows_within(std::uint64_t bytes) const;
  bool add_slab();
  void let_hold(Slab& slab, std::uint64_t bytes);
  void settle(Slab& slab);
  void drop(Slab& slab);

  std::uint64_t row_bytes_ = 1;
  std::uint64_t old_row_bytes_ = 1;
  std::uint64_t limit_ = 0;
  std::uint64_t mapped_ = 0;
  std::uint64_t charged_ = 0;
  std::vector<Slab> slabs_;
  std::size_t open_ = 0;       // slabs before it have no room
  std::size_t first_old_ = 0;  // slabs from here to end_old_ hold old rows that are not released
  std::size_t end_old_ = 0;
  bool full_ = false;
  bool warned_ = false;
};

}  // namespace sluice::data
