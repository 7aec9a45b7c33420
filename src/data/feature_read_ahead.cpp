#include "data/feature_read_ahead.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace sluice::data {
namespace {

// Values of Row::cell that are not cells of the buffer.
constexpr std::uint32_t kComes = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint32_t kIsRead = kComes - 1;
constexpr std::uint32_t kGone = kComes - 2;  // taken, skipped or not readable
constexpr std::uint32_t kMostCells = kComes - 3;
constexpr std::uint32_t kNothing = kComes;  // value in holds_ of an empty cell

}  // namespace

void FeatureReadAhead::start(std::vector<Row> rows, std::uint64_t buffer_bytes) {
  const std::lock_guard control(control_);
  std::unique_lock lock(mutex_);
  forget(lock);
  layout_ = file_.layout();
  const std::uint64_t most = MappedMemory::pages_within(buffer_bytes) / layout_.slot_bytes;
  const std::uint64_t wanted = rows.size();
  const auto cells = static_cast<std::uint32_t>(std::min({most, wanted, std::uint64_t{kMostCells}}));
  buffer_ = MappedMemory(cells * layout_.slot_bytes);
  if (buffer_.size() == 0) return;
  rows_ = std::move(rows);
  for (Row& row : rows_) row.cell = kComes;
  holds_.assign(cells, kNothing);
  for (std::uint32_t number = cells; number > 0; --number) free_.push_back(number - 1);
  if (!thread_.joinable()) thread_ = std::jthread([this](const std::stop_token& token) { run(token); });
  changed_.notify_all();
}

void FeatureReadAhead::stop() {
  const std::lock_guard control(control_);
  std::unique_lock lock(mutex_);
  forget(lock);
}

void FeatureReadAhead::forget(std::unique_lock<std::mutex>& lock) {
  forgetting_ = true;
  changed_.wait(lock, [this] { return !reading_ && taking_ == 0; });
  forgetting_ = false;
  rows_ = {};
  free_.clear();
  holds_.clear();
  buffer_ = {};
  next_ = 0;
}

bool FeatureReadAhead::is_listed(std::uint32_t position, const FeatureKey& key) const {
  return position < rows_.size() && rows_[position].key == key;
}

bool FeatureReadAhead::take(std::uint32_t position, const FeatureKey& key, std::byte* row) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !is_listed(position, key) || rows_[position].cell != kIsRead; });
  if (!is_listed(position, key)) return false;
  const std::uint32_t from = std::exchange(rows_[position].cell, kGone);
  if (from >= kMostCells) {
    if (position > next_ + 2 * holds_.size()) skip_to(position + 1);
    return false;
  }
  ++taking_;
  lock.unlock();
  std::memcpy(row, cell(from), layout_.row_bytes);
  lock.lock();
  --taking_;
  free_cell(from);
  return true;
}

void FeatureReadAhead::skip_to(std::uint32_t position) {
  for (std::uint32_t number = 0; number < holds_.size(); ++number) {
    if (holds_[number] == kNothing || rows_[holds_[number]].cell != number) continue;  // free, or being copied out
    rows_[holds_[number]].cell = kGone;
    free_cell(number);
  }
  next_ = position;
}

void FeatureReadAhead::free_cell(std::uint32_t cell) {
  holds_[cell] = kNothing;
  free_.push_back(cell);
  changed_.notify_all();
}

bool FeatureReadAhead::has_work() {
  while (next_ < rows_.size() && rows_[next_].cell != kComes) ++next_;
  return next_ < rows_.size() && !free_.empty() && !forgetting_;
}

void FeatureReadAhead::run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [this] { return has_work(); }) && !stop.stop_requested()) read_next(lock);
}

void FeatureReadAhead::read_next(std::unique_lock<std::mutex>& lock) {
  const auto position = static_cast<std::uint32_t>(next_++);
  const std::uint32_t number = free_.back();
  free_.pop_back();
  const Row row = rows_[position];
  rows_[position].cell = kIsRead;
  reading_ = true;
  lock.unlock();
  const bool is_there = file_.read(layout_, row.slot, row.key, cell(number));
  lock.lock();
  reading_ = false;
  rows_[position].cell = is_there ? number : kGone;
  holds_[number] = position;
  if (!is_there) free_cell(number);
  changed_.notify_all();
}

std::uint64_t FeatureReadAhead::mapped_bytes() const {
  const std::lock_guard lock(mutex_);
  return buffer_.size();
}

std::size_t FeatureReadAhead::rows_there() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::size_t>(std::ranges::count_if(rows_, [](const Row& row) { return row.cell < kMostCells; }));
}

}  // namespace sluice::data
