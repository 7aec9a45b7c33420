#include <algorithm>
#include <cstring>
#include <memory>
#include <tuple>

#include "core/check.h"

#include "data/feature_store.h"

namespace sluice::data {
namespace {

constexpr std::uint64_t kPieceBytes = std::uint64_t{32} << 20;
constexpr std::uint64_t kPieceRows = 256;

}  // namespace

void FeatureStore::change(std::uint64_t row_bytes, const Transform& transform) {
  check(row_bytes_ > 0, "reset() with a row size before this call");
  read_ahead_.stop();
  const FeatureFile::Layout layout = file_.layout();
  const std::vector<OldRow> rows = take_index();
  {
    const std::lock_guard lock(mutex_);
    row_bytes_ = row_bytes;
    file_.begin_change(row_bytes);
    slabs_.begin_change(row_bytes, share_memory());
  }
  try {
    change_all(rows, layout, transform);
  } catch (...) {
    reset(row_bytes);
    throw;
  }
  const std::lock_guard lock(mutex_);
  file_.end_change();
  if (file_.is_off()) forget_disk();
  slabs_.set_limit(share_memory());
  warn_if_nothing_fits();
}

// Removes all rows from the index, so that they are misses, and returns them by position, those on disk last.
std::vector<FeatureStore::OldRow> FeatureStore::take_index() {
  const std::lock_guard lock(mutex_);
  std::vector<OldRow> rows;
  rows.reserve(index_.size());
  for (const auto& [key, entry] : index_) rows.push_back({key, entry.slab, entry.row});
  index_ = {};
  left_to_change_ = rows.size();
  counts_.rows_in_memory = counts_.rows_on_disk = 0;
  std::ranges::sort(rows, {}, [](const OldRow& row) { return std::tuple(row.slab, row.row); });
  return rows;
}

// A piece ends where its slab ends. Rows from the disk may move to memory.
void FeatureStore::change_all(std::span<const OldRow> rows, const FeatureFile::Layout& layout,
                              const Transform& transform) {
  const std::uint64_t larger = std::max(layout.row_bytes, row_bytes_);
  const std::uint64_t most = std::clamp<std::uint64_t>(kPieceBytes / larger, 1, kPieceRows);
  bool in_memory = true;
  for (std::size_t begin = 0; begin < rows.size();) {
    std::size_t end = begin + 1;
    while (end < rows.size() && end - begin < most && rows[end].slab == rows[begin].slab) ++end;
    if (in_memory && rows[begin].slab == kOnDisk) {
      in_memory = false;
      const std::lock_guard lock(mutex_);
      slabs_.end_change();
    }
    change_piece(rows.subspan(begin, end - begin), layout, transform);
    begin = end;
  }
  if (!in_memory) return;
  const std::lock_guard lock(mutex_);
  slabs_.end_change();
}

void FeatureStore::change_piece(std::span<const OldRow> piece, const FeatureFile::Layout& layout,
                                const Transform& transform) {
  const std::uint64_t bytes = layout.row_bytes;
  const auto rows = std::make_unique_for_overwrite<std::byte[]>(piece.size() * bytes + layout.slot_bytes);
  std::vector<FeatureKey> keys;
  for (const OldRow& old : piece) {
    std::byte* const row = rows.get() + keys.size() * bytes;  // the buffer has room for one more slot at its end
    if (old.slab != kOnDisk) {
      std::memcpy(row, slabs_.old_row({old.slab, old.row}), bytes);
    } else if (!file_.read(layout, old.row, old.key, row)) {
      const std::lock_guard lock(mutex_);
      if (!file_.is_off()) count_damaged(old.key);
      continue;
    }
    keys.push_back(old.key);
  }
  const std::byte* const changed = keys.empty() ? nullptr : transform(rows.get(), keys);
  release(piece.back(), piece.size());
  keep(keys, changed);
}

void FeatureStore::release(const OldRow& last, std::size_t count) {
  const std::lock_guard lock(mutex_);
  left_to_change_ -= count;
  if (last.slab != kOnDisk) return slabs_.release_old({last.slab, last.row});
  disk_rows_ -= count;
  file_.release_old(last.row);
}

}  // namespace sluice::data
