// feature_store: rows of bytes of one size by key, in memory first (feature_slabs.h), then on disk (feature_file.h).
// Not here: tensors, their types, and whose rows they are (feature_cache.h). No LibTorch: its tests run under TSan.
// Nothing is evicted: all keys of an epoch come again in the next, so that a row that makes room for another would be
// missed just as that one is. The first rows that come are kept until the budgets are full.
// Budgets: memory_bytes is never exceeded by the slabs, the index (kIndexBytes a row, wherever it is) and the buffer of
// what is read ahead; disk_bytes never by the file's size. With a disk, at most an eighth of the memory and 256 MiB are
// for that buffer (half where no rows are kept in memory), and at most a quarter of the rest for the index of the rows
// on disk. Not counted: a call's own working memory, a row at a time (change(): a piece of at most 32 MiB, or a row).
// Threads: any; reset() and change() alone, besides statistics().
// Errors: none of the disk's is thrown. A row that does not verify is dropped, with one warning for all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "data/feature_file.h"
#include "data/feature_key.h"
#include "data/feature_read_ahead.h"
#include "data/feature_slabs.h"

namespace sluice::data {

struct FeatureStoreOptions {
  std::uint64_t memory_bytes = 0;
  std::uint64_t disk_bytes = 0;     // 0: nothing is kept on disk
  std::filesystem::path directory;  // of the file; made where it is not there
  bool rows_in_memory = true;       // false: memory_bytes are for the index and the buffer of what is read ahead
};

struct FeatureStatistics {
  std::int64_t hits = 0;  // rows, over the life of the cache, as all counts of events
  std::int64_t misses = 0;
  std::int64_t rows_in_memory = 0;
  std::int64_t rows_on_disk = 0;
  std::uint64_t memory_bytes = 0;  // mapped slabs and buffer, and the index
  std::uint64_t disk_bytes = 0;    // size of the file
  bool disk_is_off = false;        // it failed, or there is no budget for it
  std::int64_t damaged = 0;        // rows on disk that did not verify; misses, too
};

class FeatureStore {
 public:
  explicit FeatureStore(FeatureStoreOptions options);

  // Drops all rows; those to come have row_bytes each.
  void reset(std::uint64_t row_bytes);

  [[nodiscard]] std::vector<bool> has(std::span<const FeatureKey> keys) const;
  // The row of keys[i] to rows + i * row_bytes where [i] is true; other bytes are untouched.
  std::vector<bool> fetch(std::span<const FeatureKey> keys, std::byte* rows);
  // Which of the keys keep() would try to keep: none where both budgets are full.
  [[nodiscard]] std::vector<std::int64_t> wanted(std::span<const FeatureKey> keys) const;
  // The row of keys[i] is at rows + i * row_bytes. Rows that are there already stay as they are.
  void keep(std::span<const FeatureKey> keys, const std::byte* rows);
  // The keys that will be fetched next, in order: those on disk now are read ahead. Takes the place of the list before.
  void read_ahead(std::span<const FeatureKey> keys);

  // `count` rows of the old size -> as many of the new size, which stay where they are until the next call.
  using Transform = std::function<const std::byte*(std::byte* rows, std::int64_t count)>;
  // Replaces each row by what `transform` makes of it, a piece at a time and within the budgets all the time. Of larger
  // rows those that find no room are dropped. What transform throws is passed on; then the store is empty, of new rows.
  void change(std::uint64_t row_bytes, const Transform& transform);

  [[nodiscard]] FeatureStatistics statistics() const;

 private:
  static constexpr std::uint32_t kOnDisk = 0xffffffff;
  struct Entry {
    std::uint32_t slab = 0;      // or kOnDisk
    std::uint32_t row = 0;       // of the slab; slot of the file
    std::uint32_t position = 0;  // in the list of what is read ahead
    bool written = false;        // before, it is a miss, and nobody else writes it
    [[nodiscard]] bool on_disk() const { return slab == kOnDisk; }
  };
  // A row in the index, found or reserved.
  struct FoundRow {
    std::size_t index = 0;  // of the caller's keys
    Entry entry;
    std::byte* memory = nullptr;  // null: on disk
  };
  struct OldRow {
    FeatureKey key;
    std::uint32_t slab = 0;  // as in Entry
    std::uint32_t row = 0;
  };

  [[nodiscard]] std::uint64_t share_memory();
  void warn_if_nothing_fits();
  [[nodiscard]] std::vector<FoundRow> find(std::span<const FeatureKey> keys) const;
  bool read(const FoundRow& found_row, const FeatureKey& key, std::byte* row);
  void drop_damaged(const FeatureKey& key, std::uint32_t slot);
  void count_damaged(const FeatureKey& key);
  [[nodiscard]] bool disk_is_full() const;
  std::optional<Entry> reserve_one();
  std::vector<FoundRow> reserve(std::span<const FeatureKey> keys);
  void publish(std::span<const FoundRow> found_rows, std::span<const FeatureKey> keys);
  void forget_disk();
  std::vector<OldRow> take_index();
  void change_all(std::span<const OldRow> rows, const FeatureFile::Layout& layout, const Transform& transform);
  void change_piece(std::span<const OldRow> piece, const FeatureFile::Layout& layout, const Transform& transform);
  void release(const OldRow& last, std::size_t count);

  const FeatureStoreOptions options_;
  std::uint64_t row_bytes_ = 0;
  FeatureFile file_;

  mutable std::mutex mutex_;  // of all below; rows that are written are read, and reserved ones written, without it
  FeatureSlabs slabs_;
  std::unordered_map<FeatureKey, Entry, FeatureKeyHash> index_;
  std::uint64_t buffer_bytes_ = 0;    // kept free for read_ahead_
  std::uint64_t most_disk_rows_ = 0;  // that the memory for their index allows
  std::uint64_t disk_rows_ = 0;       // in the index, or still to be changed
  std::uint64_t left_to_change_ = 0;  // rows
  bool disk_is_forgotten_ = false;
  bool warned_of_size_ = false;
  FeatureStatistics counts_;  // of events and rows
  FeatureReadAhead read_ahead_;
};

}  // namespace sluice::data
