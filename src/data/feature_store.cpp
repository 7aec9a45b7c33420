#include "data/feature_store.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "core/check.h"
#include "core/log.h"
#include "core/text.h"

namespace sluice::data {
namespace {

constexpr std::uint64_t kLargestBuffer = std::uint64_t{256} << 20;

}  // namespace

FeatureStore::FeatureStore(FeatureStoreOptions options)
    : options_(std::move(options)), file_(options_.directory, options_.disk_bytes), read_ahead_(file_) {}

void FeatureStore::reset(std::uint64_t row_bytes) {
  read_ahead_.stop();
  const std::lock_guard lock(mutex_);
  index_ = {};
  disk_rows_ = left_to_change_ = 0;
  counts_.rows_in_memory = counts_.rows_on_disk = 0;
  row_bytes_ = row_bytes;
  file_.reset(row_bytes);
  slabs_.reset(row_bytes, share_memory());
  warn_if_nothing_fits();
}

// Divides the memory between the index of rows on disk, the read-ahead buffer and, as returned, rows with index.
std::uint64_t FeatureStore::share_memory() {
  const std::uint64_t all = options_.memory_bytes;
  buffer_bytes_ = most_disk_rows_ = 0;
  if (!file_.is_off()) {
    buffer_bytes_ = std::min(all / (options_.rows_in_memory ? 8 : 2), kLargestBuffer);
    const std::uint64_t for_index = (all - buffer_bytes_) / (options_.rows_in_memory ? 4 : 1);
    most_disk_rows_ = std::min(file_.most_rows(), for_index / kIndexBytes);
  }
  if (!options_.rows_in_memory) return 0;
  const std::uint64_t taken = buffer_bytes_ + std::max(most_disk_rows_, disk_rows_) * kIndexBytes;
  return all > taken ? all - taken : 0;
}

void FeatureStore::warn_if_nothing_fits() {
  if (options_.memory_bytes == 0 && options_.disk_bytes == 0) return;
  if (options_.disk_bytes > 0 && file_.is_off()) return;
  if (slabs_.could_hold_one() || most_disk_rows_ > 0 || std::exchange(warned_of_size_, true)) return;
  log_warning("the feature cache keeps nothing: freeze.cache_bytes = ", human_bytes(options_.memory_bytes),
              " and freeze.cache_disk_bytes = ", human_bytes(options_.disk_bytes), " leave no room for a row of ",
              human_bytes(row_bytes_), " (a row on disk takes ", kIndexBytes, " B of memory); raise them");
}

std::vector<FeatureStore::FoundRow> FeatureStore::find(std::span<const FeatureKey> keys) const {
  std::vector<FoundRow> found_rows;
  found_rows.reserve(keys.size());
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto found = index_.find(keys[i]);
    if (found == index_.end() || !found->second.written) continue;
    const Entry& entry = found->second;
    found_rows.push_back({i, entry, entry.on_disk() ? nullptr : slabs_.row({entry.slab, entry.row})});
  }
  return found_rows;
}

std::vector<bool> FeatureStore::has(std::span<const FeatureKey> keys) const {
  std::vector<bool> is_there(keys.size());
  for (const FoundRow& found_row : find(keys)) is_there[found_row.index] = true;
  return is_there;
}

std::vector<bool> FeatureStore::fetch(std::span<const FeatureKey> keys, std::byte* rows) {
  check(row_bytes_ > 0, "reset() with a row size before this call");
  std::vector<bool> is_there(keys.size());
  for (const FoundRow& found_row : find(keys))
    is_there[found_row.index] = read(found_row, keys[found_row.index], rows + found_row.index * row_bytes_);
  const auto hits = std::ranges::count(is_there, true);
  const std::lock_guard lock(mutex_);
  counts_.hits += hits;
  counts_.misses += std::ssize(keys) - hits;
  return is_there;
}

bool FeatureStore::read(const FoundRow& found_row, const FeatureKey& key, std::byte* row) {
  if (found_row.memory != nullptr) {
    std::memcpy(row, found_row.memory, row_bytes_);
    return true;
  }
  if (read_ahead_.take(found_row.entry.position, key, row)) return true;
  // Reads to a buffer, because a damaged row must leave the caller's row unchanged.
  const auto slot = std::make_unique_for_overwrite<std::byte[]>(file_.layout().slot_bytes);
  if (!file_.read(file_.layout(), found_row.entry.row, key, slot.get())) {
    drop_damaged(key, found_row.entry.row);
    return false;
  }
  std::memcpy(row, slot.get(), row_bytes_);
  return true;
}

void FeatureStore::drop_damaged(const FeatureKey& key, std::uint32_t slot) {
  const std::lock_guard lock(mutex_);
  if (file_.is_off()) return;
  const auto found = index_.find(key);
  const bool is_same = found != index_.end() && found->second.on_disk() && found->second.row == slot;
  if (!is_same || !found->second.written) return;
  index_.erase(found);
  file_.give_back(slot);
  --disk_rows_;
  --counts_.rows_on_disk;
  count_damaged(key);
}

void FeatureStore::count_damaged(const FeatureKey& key) {
  if (counts_.damaged++ > 0) return;
  log_warning("the feature cache's row of sample ", key.sample, ", view ", key.view, " in ",
              options_.directory.string(),
              " has changed on the disk; damaged rows are computed again; check that disk");
}

bool FeatureStore::disk_is_full() const {
  if (file_.full() || disk_rows_ >= most_disk_rows_) return true;
  return slabs_.charged_bytes() + (disk_rows_ + 1) * kIndexBytes + buffer_bytes_ > options_.memory_bytes;
}

std::vector<std::int64_t> FeatureStore::wanted(std::span<const FeatureKey> keys) const {
  std::vector<std::int64_t> missing;
  const std::lock_guard lock(mutex_);
  if (slabs_.full() && disk_is_full()) return missing;
  for (std::int64_t i = 0; i < std::ssize(keys); ++i) {
    if (!index_.contains(keys[i])) missing.push_back(i);
  }
  return missing;
}

std::optional<FeatureStore::Entry> FeatureStore::reserve_one() {
  if (const auto slot = slabs_.reserve()) return Entry{.slab = slot->slab, .row = slot->row};
  if (disk_is_full()) return std::nullopt;
  const auto slot = file_.reserve();
  if (!slot) return std::nullopt;  // the file has just been closed after an error
  ++disk_rows_;
  return Entry{.slab = kOnDisk, .row = *slot};
}

std::vector<FeatureStore::FoundRow> FeatureStore::reserve(std::span<const FeatureKey> keys) {
  std::vector<FoundRow> found_rows;
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (index_.contains(keys[i])) continue;
    const auto entry = reserve_one();
    if (!entry) break;
    index_.emplace(keys[i], *entry);
    found_rows.push_back({i, *entry, entry->on_disk() ? nullptr : slabs_.row({entry->slab, entry->row})});
  }
  return found_rows;
}

void FeatureStore::keep(std::span<const FeatureKey> keys, const std::byte* rows) {
  check(row_bytes_ > 0, "reset() with a row size before this call");
  const std::vector<FoundRow> found_rows = reserve(keys);
  for (const FoundRow& found_row : found_rows) {
    const std::byte* const row = rows + found_row.index * row_bytes_;
    if (found_row.memory != nullptr) {
      std::memcpy(found_row.memory, row, row_bytes_);
    } else {
      file_.write(found_row.entry.row, keys[found_row.index],
                  row);  // a failure closes the file; publish() checks that
    }
  }
  publish(found_rows, keys);
}

void FeatureStore::publish(std::span<const FoundRow> found_rows, std::span<const FeatureKey> keys) {
  const std::lock_guard lock(mutex_);
  const bool disk_is_off = file_.is_off();
  for (const FoundRow& found_row : found_rows) {
    const auto entry = index_.find(keys[found_row.index]);
    if (found_row.memory == nullptr && disk_is_off) {
      index_.erase(entry);
      --disk_rows_;
      continue;
    }
    entry->second.written = true;
    ++(found_row.memory == nullptr ? counts_.rows_on_disk : counts_.rows_in_memory);
  }
  if (disk_is_off) forget_disk();
}

void FeatureStore::forget_disk() {
  if (options_.disk_bytes == 0 || std::exchange(disk_is_forgotten_, true)) return;
  read_ahead_.stop();
  // publish() drops the rows that other threads are still writing.
  disk_rows_ -= std::erase_if(index_, [](const auto& item) { return item.second.on_disk() && item.second.written; });
  counts_.rows_on_disk = 0;
  slabs_.set_limit(share_memory());
}

void FeatureStore::read_ahead(std::span<const FeatureKey> keys) {
  check(row_bytes_ > 0, "reset() with a row size before this call");
  std::vector<FeatureReadAhead::Row> rows;
  const std::lock_guard lock(mutex_);  // keeps the buffer's share of the memory constant
  rows.reserve(std::min<std::size_t>(keys.size(), disk_rows_));
  for (const FeatureKey& key : keys) {
    if (rows.size() == disk_rows_) break;
    const auto found = index_.find(key);
    if (found == index_.end() || !found->second.written || !found->second.on_disk()) continue;
    found->second.position = static_cast<std::uint32_t>(rows.size());
    rows.push_back({.key = key, .slot = found->second.row});
  }
  read_ahead_.start(std::move(rows), buffer_bytes_);
}

FeatureStatistics FeatureStore::statistics() const {
  const std::lock_guard lock(mutex_);
  FeatureStatistics all = counts_;
  all.memory_bytes =
      slabs_.mapped_bytes() + (index_.size() + left_to_change_) * kIndexBytes + read_ahead_.mapped_bytes();
  all.disk_bytes = file_.size();
  all.disk_is_off = file_.is_off();
  return all;
}

}  // namespace sluice::data
