// feature_slabs: rows in memory, in slabs of many rows, which only reset() drops. A slab is a memory mapping of a 16th
// of the limit, at most 64 MiB and at least one row. It is charged its pages, plus kIndexBytes per row for the caller's
// index.
// Threads: one at a time; a row's bytes belong to the caller that reserved it and do not move. Errors: if memory runs
// out, reserve() is empty and one warning is logged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "data/mapped_memory.h"

namespace sluice::data {

// Per row, rounded up: hash-map node with its malloc() block 48, buckets after growth 16, read-ahead list 24.
inline constexpr std::uint64_t kIndexBytes = 96;

class FeatureSlabs {
 public:
  struct Slot {
    std::uint32_t slab = 0;
    std::uint32_t row = 0;
  };

  // Drops all rows; later rows have row_bytes (> 0) each. limit: of the charge.
  void reset(std::uint64_t row_bytes, std::uint64_t limit);
  // Memory that is already charged stays, even beyond the limit.
  void set_limit(std::uint64_t limit);

  [[nodiscard]] std::optional<Slot> reserve();
  [[nodiscard]] bool full() const { return full_; }  // true after a failed reserve(), until something is freed
  [[nodiscard]] std::byte* row(Slot slot) const { return slabs_[slot.slab].memory.data() + slot.row * row_bytes_; }
  [[nodiscard]] bool could_hold_one() const { return charge_of(1) <= limit_; }

  [[nodiscard]] std::uint64_t mapped_bytes() const { return mapped_; }
  [[nodiscard]] std::uint64_t charged_bytes() const { return charged_; }

  // Replace rows by rows of another size in the same memory. Between the two calls, earlier slots are read with
  // old_row(), and reserve() never returns rows over unreleased old ones.
  void begin_change(std::uint64_t row_bytes, std::uint64_t limit);
  void end_change();  // releases the remaining old rows
  [[nodiscard]] const std::byte* old_row(Slot slot) const {
    return slabs_[slot.slab].memory.data() + slot.row * old_row_bytes_;
  }
  void release_old(Slot last);

 private:
  struct Slab {
    MappedMemory memory;  // empty: freed during a change
    std::uint32_t capacity = 0;
    std::uint32_t used = 0;
    std::uint32_t granted = 0;  // rows whose index is charged, at least the capacity
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
  std::size_t open_ = 0;       // slabs before it are full
  std::size_t first_old_ = 0;  // slabs first_old_ .. end_old_ - 1 hold unreleased old rows
  std::size_t end_old_ = 0;
  bool full_ = false;
  bool warned_ = false;
};

}  // namespace sluice::data
