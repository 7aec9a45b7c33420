// feature_file: rows of bytes of one size in a file that no folder lists (unnamed_file.h), each with a checksum.
// The file grows in steps, preallocated where the file system can, and never beyond its budget. A slot is the row, XXH3
// of it, and up to 7 bytes more; the checksum begins from the key and from the count of layouts, so that what is read
// is the row that was written for this key and no older one.
// Not counted: the system's page cache, which it takes back when it needs the memory.
// Threads: read() and write() any; the rest one at a time, reset() and the change of layout alone.
// Errors: none is thrown. The first that says that the disk is full or broken ends the file: one warning, its space is
// given back (a checkpoint may need it), all reads and writes fail from then on.
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
    std::uint64_t count = 0;  // of layouts before this one
  };

  // A folder that is not there is made. budget: of the file's size; 0: there is no file.
  FeatureFile(std::filesystem::path folder, std::uint64_t budget);

  [[nodiscard]] bool is_off() const { return off_.load(std::memory_order_acquire); }
  [[nodiscard]] std::uint64_t size() const { return size_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t budget() const { return budget_; }
  [[nodiscard]] const Layout& layout() const { return layout_; }
  [[nodiscard]] std::uint64_t most_rows() const { return is_off() ? 0 : budget_ / layout_.slot_bytes; }

  // Drops all rows; those to come have row_bytes each (> 0).
  void reset(std::uint64_t row_bytes);

  [[nodiscard]] std::optional<std::uint32_t> reserve();  // a slot; empty when the budget is full, or the file is off
  [[nodiscard]] bool full() const;                       // reserve() would be empty
  void give_back(std::uint32_t slot) { free_.push_back(slot); }
  bool write(std::uint32_t slot, const FeatureKey& key, const std::byte* row);
  // slot_bytes of the layout to `into`, of which the first row_bytes are the row. False: it is not what was written.
  bool read(const Layout& layout, std::uint32_t slot, const FeatureKey& key, std::byte* into) const;

  // Replaces rows by rows of another size within the file, as FeatureSlabs does: between these two calls the slots
  // handed out before are read with the layout that was; reserve() hands out what does not touch old rows.
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
  mutable std::shared_mutex open_;  // shared: file_ is used; alone: it is closed
  FileDescriptor file_;
  std::atomic<bool> off_{true};
  std::mutex growing_;
  std::atomic<std::uint64_t> size_{0};
  bool preallocates_ = true;
  bool warned_ = false;

  Layout layout_;
  Layout old_;
  std::uint64_t old_slots_ = 0;   // of the old layout, from the front
  std::uint64_t low_ = 0;         // slots low_ .. low_end_ - 1 and from high_ on were not handed out,
  std::uint64_t low_end_ = 0;     // besides those that were given back
  std::uint64_t high_begin_ = 0;  // where high_ began
  std::uint64_t high_ = 0;
  std::vector<std::uint32_t> free_;
};

}  // namespace sluice::data
