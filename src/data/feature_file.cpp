#include "data/feature_file.h"

#define XXH_INLINE_ALL
#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <system_error>
#include <utility>

#include "core/check.h"
#include "core/error.h"
#include "core/log.h"

namespace sluice::data {
namespace {

constexpr std::uint64_t kGrowthSteps = 64;  // steps of growth in the budget; a step stays within these bounds
constexpr std::uint64_t kLeastGrowth = std::uint64_t{1} << 20;
constexpr std::uint64_t kLargestGrowth = std::uint64_t{64} << 20;
constexpr std::uint64_t kMostSlots = std::numeric_limits<std::uint32_t>::max();

using Checksum = std::uint64_t;

Checksum checksum_of(const FeatureFile::Layout& layout, const FeatureKey& key, const std::byte* row) {
  return XXH3_64bits_withSeed(row, layout.row_bytes, hash_of(key) + splitmix64(layout.count));
}

// Returns 0 or an errno.
int write_all(int file, const void* from, std::uint64_t bytes, std::uint64_t offset) {
  const auto* next = static_cast<const std::byte*>(from);
  while (bytes > 0) {
    const auto written = uninterrupted([&] { return ::pwrite(file, next, bytes, static_cast<off_t>(offset)); });
    if (written <= 0) return written < 0 ? errno : ENOSPC;
    next += written;
    offset += static_cast<std::uint64_t>(written);
    bytes -= static_cast<std::uint64_t>(written);
  }
  return 0;
}

bool read_all(int file, std::byte* into, std::uint64_t bytes, std::uint64_t offset) {
  while (bytes > 0) {
    const auto count = uninterrupted([&] { return ::pread(file, into, bytes, static_cast<off_t>(offset)); });
    if (count <= 0) return false;
    into += count;
    offset += static_cast<std::uint64_t>(count);
    bytes -= static_cast<std::uint64_t>(count);
  }
  return true;
}

}  // namespace

FeatureFile::FeatureFile(std::filesystem::path folder, std::uint64_t budget)
    : folder_(std::move(folder)), budget_(budget) {
  if (budget_ == 0) return;
  check(!folder_.empty(), "a folder for the feature cache on disk");
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (!error) {
    remove_leftovers(folder_);
    file_ = open_unnamed(folder_);
    if (!file_.is_open()) error = {errno, std::generic_category()};
  }
  if (error) {
    give_up(error.value());
    return;
  }
  ::posix_fadvise(file_.get(), 0, 0, POSIX_FADV_RANDOM);
  off_ = false;
}

void FeatureFile::lay_out(std::uint64_t row_bytes) {
  check(row_bytes > 0, "feature rows of at least one byte");
  const std::uint64_t slot = (row_bytes + sizeof(Checksum) + 7) / 8 * 8;
  layout_ = {row_bytes, slot, layout_.count + 1};
  free_.clear();
}

void FeatureFile::reset(std::uint64_t row_bytes) {
  lay_out(row_bytes);
  old_slots_ = low_ = low_end_ = high_begin_ = high_ = 0;
  resize(0);
}

bool FeatureFile::full() const {
  return is_off() || (free_.empty() && low_ >= low_end_ && high_ >= std::min(most_rows(), kMostSlots));
}

std::optional<std::uint32_t> FeatureFile::reserve() {
  if (full()) return std::nullopt;
  if (!free_.empty()) {
    const std::uint32_t slot = free_.back();
    free_.pop_back();
    return slot;
  }
  if (low_ < low_end_) return static_cast<std::uint32_t>(low_++);
  return static_cast<std::uint32_t>(high_++);
}

bool FeatureFile::write(std::uint32_t slot, const FeatureKey& key, const std::byte* row) {
  const std::uint64_t begin = slot * layout_.slot_bytes;
  if (!grow_to(begin + layout_.slot_bytes)) return false;
  const Checksum checksum = checksum_of(layout_, key, row);
  int error = 0;
  {
    const std::shared_lock lock(open_);
    if (!file_.is_open()) return false;
    error = write_all(file_.get(), row, layout_.row_bytes, begin);
    if (error == 0) error = write_all(file_.get(), &checksum, sizeof checksum, begin + layout_.row_bytes);
  }
  if (error != 0) give_up(error);
  return error == 0;
}

bool FeatureFile::read(const Layout& layout, std::uint32_t slot, const FeatureKey& key, std::byte* into) const {
  {
    const std::shared_lock lock(open_);
    if (!file_.is_open() || !read_all(file_.get(), into, layout.slot_bytes, slot * layout.slot_bytes)) return false;
  }
  Checksum checksum = 0;
  std::memcpy(&checksum, into + layout.row_bytes, sizeof checksum);
  return checksum == checksum_of(layout, key, into);
}

bool FeatureFile::grow_to(std::uint64_t bytes) {
  check(bytes <= budget_, "a slot within the budget of the feature cache's file");
  int error = 0;
  {
    const std::lock_guard growing(growing_);
    if (bytes <= size()) return true;
    const std::uint64_t step = std::clamp(budget_ / kGrowthSteps, kLeastGrowth, kLargestGrowth);
    const std::uint64_t aim = std::min(budget_, std::max(bytes, size() + step));
    const std::shared_lock lock(open_);
    if (!file_.is_open()) return false;
    error = extend(aim);
    if (error == 0) size_ = aim;
  }
  if (error != 0) give_up(error);
  return error == 0;
}

int FeatureFile::extend(std::uint64_t bytes) {
  while (preallocates_) {
    if (::fallocate(file_.get(), 0, 0, static_cast<off_t>(bytes)) == 0) return 0;
    if (errno == EINTR) continue;
    if (errno != EOPNOTSUPP && errno != ENOSYS) return errno;
    preallocates_ = false;
  }
  return ::ftruncate(file_.get(), static_cast<off_t>(bytes)) == 0 ? 0 : errno;
}

void FeatureFile::resize(std::uint64_t bytes) {
  if (is_off() || bytes >= size()) return;
  if (::ftruncate(file_.get(), static_cast<off_t>(bytes)) != 0) return give_up(errno);
  size_ = bytes;
}

void FeatureFile::give_up(int error) {
  const std::unique_lock lock(open_);
  if (std::exchange(warned_, true)) return;
  off_ = true;
  file_.reset();
  size_ = 0;
  log_warning("the feature cache stops using the disk: ", folder_.string(), ": ",
              std::generic_category().message(error), "; features that do not fit in memory are computed again; ",
              is_file_limit(error) ? kRaiseFileLimit : "free space there or set freeze.cache_dir");
}

void FeatureFile::begin_change(std::uint64_t row_bytes) {
  old_ = layout_;
  old_slots_ = high_;
  lay_out(row_bytes);
  const std::uint64_t old_end = old_slots_ * old_.slot_bytes;
  low_ = low_end_ = 0;
  high_begin_ = high_ = (old_end + layout_.slot_bytes - 1) / layout_.slot_bytes;
}

void FeatureFile::release_old(std::uint32_t last) {
  low_end_ = (last + std::uint64_t{1}) * old_.slot_bytes / layout_.slot_bytes;
}

void FeatureFile::end_change() {
  low_end_ = high_begin_;      // the slots after it are free within the budget, or the next lines take it back
  if (high_ == high_begin_) {  // no slot after the old ones was needed
    high_ = low_;
    low_ = low_end_ = high_begin_ = 0;
  }
  resize(high_ * layout_.slot_bytes);
}

}  // namespace sluice::data
