// feature_file: fixed-size rows in an unnamed file (unnamed_file.h) that grows in steps up to its budget. A slot is the
// row, its XXH3 and padding. The checksum is seeded with the key and the layout count, so that a read returns this
// key's latest row or fails.
// Threads: read() and write() any; other calls one at a time, reset() and layout changes alone. Errors: nothing is
// thrown. The first error of a full or broken disk is logged and ends the file: its space is freed, and all later reads
// and writes fail.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <vector>

#include "data/feature_key.h"
#include "data/unnamed_file.h"

namespace sluice::data {

class FeatureFile {
 public:
  struct Layout {
    std::uint64_t row_bytes = 0;
    std::uint64_t slot_bytes = 0;
    std::uint64_t count = 0;  // number of earlier layouts
  };

  // Creates the folder if it is missing. budget: of the file's size; 0: no file.
  FeatureFile(std::filesystem::path folder, std::uint64_t budget);

  [[nodiscard]] bool is_off() const { return off_.load(std::memory_order_acquire); }
  [[nodiscard]] std::uint64_t size() const { return size_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t budget() const { return budget_; }
  [[nodiscard]] const Layout& layout() const { return layout_; }
  [[nodiscard]] std::uint64_t most_rows() const { return is_off() ? 0 : budget_ / layout_.slot_bytes; }

  void reset(std::uint64_t row_bytes);

  [[nodiscard]] std::optional<std::uint32_t> reserve();  // a slot; empty if the budget is full or the file is off
  [[nodiscard]] bool full() const;
  void give_back(std::uint32_t slot) { free_.push_back(slot); }
  bool write(std::uint32_t slot, const FeatureKey& key, const std::byte* row);
  // Reads slot_bytes of the layout to `into`; the first row_bytes are the row. Returns false if the checksum is wrong.
  bool read(const Layout& layout, std::uint32_t slot, const FeatureKey& key, std::byte* into) const;

  // Replace rows by rows of another size within the file. Between the two calls, old slots are read with the old
  // layout, and reserve() returns slots that do not overlap old rows.
  void begin_change(std::uint64_t row_bytes);
  void end_change();
  void release_old(std::uint32_t last);

 private:
  void lay_out(std::uint64_t row_bytes);
  bool grow_to(std::uint64_t bytes);
  int extend(std::uint64_t bytes);
  void resize(std::uint64_t bytes);
  void give_up(int error);

  const std::filesystem::path folder_;
  const std::uint64_t budget_;
  mutable std::shared_mutex open_;  // shared: file_ is in use; exclusive: it is closed
  FileDescriptor file_;
  std::atomic<bool> off_{true};
  std::mutex growing_;
  std::atomic<std::uint64_t> size_{0};
  bool preallocates_ = true;
  bool warned_ = false;

  Layout layout_;
  Layout old_;
  std::uint64_t old_slots_ = 0;  // slots of the old layout, from the front
  std::uint64_t low_ = 0;        // free slots, besides free_: low_ .. low_end_ - 1, and all from high_ on
  std::uint64_t low_end_ = 0;
  std::uint64_t high_begin_ = 0;
  std::uint64_t high_ = 0;
  std::vector<std::uint32_t> free_;
};

}  // namespace sluice::data
