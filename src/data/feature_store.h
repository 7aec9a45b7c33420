// feature_store: rows of bytes of one size by key, in memory first (feature_slabs.h), then on disk (feature_file.h). No
// LibTorch, so that its tests run under TSan. Nothing is evicted, because every epoch requests all keys again.
// Budgets: slabs, index (kIndexBytes per row, in memory or on disk) and read-ahead buffer never exceed memory_bytes;
// the file never exceeds disk_bytes. With a disk, the buffer takes at most an eighth of the memory and 256 MiB (half of
// the memory if it holds no rows); the index of rows on disk takes at most a quarter of the rest. Working memory of a
// call (change(): at most 32 MiB, or a row) is not included.
// Threads: any; reset() and change() run alone, except for statistics(). Errors: disk errors are not thrown. Damaged
// rows are dropped, with one warning for all.
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
  std::uint64_t disk_bytes = 0;     // 0: no rows on disk
  std::filesystem::path directory;  // folder of the file; created if missing
  bool rows_in_memory = true;       // false: memory_bytes limits only index and read-ahead buffer
};

struct FeatureStatistics {
  std::int64_t hits = 0;  // rows; like all event counts, since the cache was created
  std::int64_t misses = 0;
  std::int64_t rows_in_memory = 0;
  std::int64_t rows_on_disk = 0;
  std::uint64_t memory_bytes = 0;  // mapped slabs and buffer, and the index
  std::uint64_t disk_bytes = 0;
  bool disk_is_off = false;  // it failed, or its budget is 0
  std::int64_t damaged = 0;  // rows on disk with a wrong checksum; also counted as misses
};

class FeatureStore {
 public:
  explicit FeatureStore(FeatureStoreOptions options);

  void reset(std::uint64_t row_bytes);

  [[nodiscard]] std::vector<bool> has(std::span<const FeatureKey> keys) const;
  // Copies the row of keys[i] to rows + i * row_bytes and sets [i]; bytes of missing rows stay unchanged.
  std::vector<bool> fetch(std::span<const FeatureKey> keys, std::byte* rows);
  // Indices of the keys that keep() would try to store; none if both budgets are full.
  [[nodiscard]] std::vector<std::int64_t> wanted(std::span<const FeatureKey> keys) const;
  // Stores the row of keys[i] from rows + i * row_bytes. Existing rows stay unchanged.
  void keep(std::span<const FeatureKey> keys, const std::byte* rows);
  // Replaces the list of keys that will be fetched next; rows on disk are read ahead.
  void read_ahead(std::span<const FeatureKey> keys);

  // Maps the old rows of `keys` to as many new rows; the result is valid until the next call.
  using Transform = std::function<const std::byte*(std::byte* rows, std::span<const FeatureKey> keys)>;
  // Replaces each row by its transform. If rows grow, those without room are dropped. An exception of `transform` is
  // passed on; the store is then empty and has the new row size.
  void change(std::uint64_t row_bytes, const Transform& transform);

  [[nodiscard]] FeatureStatistics statistics() const;

 private:
  static constexpr std::uint32_t kOnDisk = 0xffffffff;
  struct Entry {
    std::uint32_t slab = 0;      // or kOnDisk
    std::uint32_t row = 0;       // row of the slab, or slot of the file
    std::uint32_t position = 0;  // position in the read-ahead list
    bool written = false;        // false: the row is a miss, and only the reserving thread writes it
    [[nodiscard]] bool on_disk() const { return slab == kOnDisk; }
  };
  struct FoundRow {
    std::size_t index = 0;
    Entry entry;
    std::byte* memory = nullptr;  // null: on disk
  };
  struct OldRow {
    FeatureKey key;
    std::uint32_t slab = 0;
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

  mutable std::mutex
      mutex_;  // protects all members below; written rows are read and reserved rows are written without it
  FeatureSlabs slabs_;
  std::unordered_map<FeatureKey, Entry, FeatureKeyHash> index_;
  std::uint64_t buffer_bytes_ = 0;    // reserved for read_ahead_
  std::uint64_t most_disk_rows_ = 0;  // limit from the memory for their index
  std::uint64_t disk_rows_ = 0;       // in the index, or still to be changed
  std::uint64_t left_to_change_ = 0;
  bool disk_is_forgotten_ = false;
  bool warned_of_size_ = false;
  FeatureStatistics counts_;
  FeatureReadAhead read_ahead_;
};

}  // namespace sluice::data
