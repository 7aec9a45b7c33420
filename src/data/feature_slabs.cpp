#include "data/feature_slabs.h"

#include <algorithm>

#include "core/check.h"
#include "core/log.h"
#include "core/text.h"

namespace sluice::data {
namespace {

constexpr std::uint64_t kSlabsOfLimit = 16;
constexpr std::uint64_t kLargestSlab = std::uint64_t{64} << 20;
constexpr std::uint64_t kMostRows = std::uint64_t{1} << 31;  // per slab: row numbers have 32 bits

}  // namespace

std::uint64_t FeatureSlabs::charge_of(std::uint64_t rows) const {
  return MappedMemory::whole_pages(rows * row_bytes_) + rows * kIndexBytes;
}

std::uint64_t FeatureSlabs::rows_within(std::uint64_t bytes) const {
  std::uint64_t rows = bytes / (row_bytes_ + kIndexBytes);
  while (rows > 0 && charge_of(rows) > bytes) --rows;  // at most a page's worth of iterations
  return rows;
}

void FeatureSlabs::reset(std::uint64_t row_bytes, std::uint64_t limit) {
  check(row_bytes > 0, "feature rows of at least one byte");
  slabs_.clear();
  mapped_ = charged_ = 0;
  open_ = first_old_ = end_old_ = 0;
  row_bytes_ = row_bytes;
  set_limit(limit);
}

void FeatureSlabs::set_limit(std::uint64_t limit) {
  limit_ = limit;
  full_ = false;
}

std::optional<FeatureSlabs::Slot> FeatureSlabs::reserve() {
  if (full_) return std::nullopt;
  for (std::size_t i = open_; i < slabs_.size();) {
    Slab& slab = slabs_[i];
    if (slab.used < slab.capacity) return Slot{static_cast<std::uint32_t>(i), slab.used++};
    const bool has_old = i >= first_old_ && i < end_old_;  // old rows leave room there; later slabs have none yet
    if (i == open_ && !has_old) ++open_;
    i = has_old ? end_old_ : i + 1;
  }
  if (!add_slab()) return std::nullopt;
  return Slot{static_cast<std::uint32_t>(slabs_.size() - 1), slabs_.back().used++};
}

bool FeatureSlabs::add_slab() {
  const std::uint64_t usual = MappedMemory::whole_pages(std::min(limit_ / kSlabsOfLimit, kLargestSlab)) / row_bytes_;
  const std::uint64_t left = limit_ > charged_ ? limit_ - charged_ : 0;
  const std::uint64_t rows = std::min({std::max<std::uint64_t>(usual, 1), rows_within(left), kMostRows});
  MappedMemory memory(rows * row_bytes_);
  full_ = memory.size() == 0;
  if (full_) {
    if (rows > 0 && !std::exchange(warned_, true))
      log_warning("the system gives the feature cache no more memory than the ", human_bytes(mapped_),
                  " that it has; features that do not fit are computed again; lower freeze.cache_bytes");
    return false;
  }
  mapped_ += memory.size();
  charged_ += memory.size() + rows * kIndexBytes;
  const auto count = static_cast<std::uint32_t>(rows);
  slabs_.push_back({std::move(memory), count, 0, count});
  return true;
}

void FeatureSlabs::begin_change(std::uint64_t row_bytes, std::uint64_t limit) {
  check(row_bytes > 0, "feature rows of at least one byte");
  old_row_bytes_ = std::exchange(row_bytes_, row_bytes);
  for (Slab& slab : slabs_) slab.capacity = slab.used = 0;
  open_ = first_old_ = 0;
  end_old_ = slabs_.size();
  set_limit(limit);
}

// Lets new rows use the first `bytes` of the slab, as far as the index of additional rows fits within the limit.
void FeatureSlabs::let_hold(Slab& slab, std::uint64_t bytes) {
  if (slab.memory.size() == 0) return;
  const std::uint64_t left = limit_ > charged_ ? (limit_ - charged_) / kIndexBytes : 0;
  const auto rows = static_cast<std::uint32_t>(std::min({bytes / row_bytes_, slab.granted + left, kMostRows}));
  slab.capacity = std::max(slab.capacity, rows);
  if (slab.capacity > slab.granted) {
    charged_ += (slab.capacity - slab.granted) * kIndexBytes;
    slab.granted = slab.capacity;
  }
}

// Lets new rows use the whole slab; larger rows are fewer, so less index is charged.
void FeatureSlabs::settle(Slab& slab) {
  let_hold(slab, slab.memory.size());
  charged_ -= (slab.granted - slab.capacity) * kIndexBytes;
  slab.granted = slab.capacity;
}

void FeatureSlabs::drop(Slab& slab) {
  mapped_ -= slab.memory.size();
  charged_ -= slab.memory.size() + slab.granted * kIndexBytes;
  slab = Slab{};
}

void FeatureSlabs::release_old(Slot last) {
  full_ = false;
  while (first_old_ < last.slab) {
    Slab& slab = slabs_[first_old_++];
    settle(slab);
    if (slab.used == 0) drop(slab);
  }
  let_hold(slabs_[last.slab], (last.row + std::uint64_t{1}) * old_row_bytes_);
}

void FeatureSlabs::end_change() {
  full_ = false;
  while (first_old_ < end_old_) settle(slabs_[first_old_++]);
  for (Slab& slab : slabs_) {
    if (slab.used == 0 && slab.memory.size() > 0) drop(slab);
  }
}

}  // namespace sluice::data
