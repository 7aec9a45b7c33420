#include "storage/record_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "core/check.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/failpoint.h"
#include "storage/checksum.h"

namespace sluice::storage {
namespace {

constexpr std::string_view kMagic = "SLUICE\x1a\x01";
constexpr std::size_t kDigestLength = 32;
constexpr std::size_t kSmall = std::size_t{1} << 16;  // smaller parts are joined into one write
constexpr std::size_t kBlock = std::size_t{1} << 20;
constexpr std::uint64_t kMostParts = std::uint64_t{1} << 20;
constexpr std::size_t kLargestWrite = std::size_t{1} << 30;

// For a log that is never synced: every written record counts as committed.
constexpr std::uint64_t kAlwaysCounts = std::numeric_limits<std::uint64_t>::max();

struct RecordHead {
  std::array<char, 8> magic{};
  std::uint64_t kind = 0;
  std::uint64_t number = 0;  // index of the record in its file, from 0
  std::uint64_t bytes = 0;   // bytes after the head: number of parts, their sizes, the parts
  std::uint64_t synced = 0;  // bytes of the file that were synced before this record
  std::array<char, kDigestLength> digest{};
  std::array<char, kDigestLength> own_digest{};  // digest of the fields above
};
static_assert(sizeof(RecordHead) == 8 + 4 * 8 + 2 * kDigestLength && std::is_trivially_copyable_v<RecordHead>);

std::string_view text_of(const RecordHead& head) {
  return {reinterpret_cast<const char*>(&head), sizeof(RecordHead) - kDigestLength};
}

std::array<char, kDigestLength> as_array(const FileDigest& digest) {
  std::array<char, kDigestLength> array{};
  std::ranges::copy(digest.xxh3_128, array.begin());
  return array;
}

bool is_intact(const RecordHead& head) {
  return std::string_view(head.magic.data(), head.magic.size()) == kMagic &&
         as_array(digest_text(text_of(head))) == head.own_digest;
}

std::string sizes_of(std::span<const std::string_view> parts) {
  std::vector<std::uint64_t> numbers{parts.size()};
  for (const std::string_view part : parts) numbers.push_back(part.size());
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(std::uint64_t)};
}

std::uint64_t number_at(std::string_view bytes, std::uint64_t index) {
  std::uint64_t number = 0;
  std::memcpy(&number, bytes.data() + index * sizeof number, sizeof number);
  return number;
}

}  // namespace

RecordLog::RecordLog(std::filesystem::path file, Outlives outlives)
    : path_(std::move(file)),
      temporary_(concat(path_.string(), ".new")),
      outlives_(outlives),
      file_(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666)) {
  if (file_.get() < 0) throw_storage_error(errno, "create", path_);
}

RecordLog::~RecordLog() {
  if (!is_published_) ::unlink(temporary_.c_str());
}

void RecordLog::append(std::uint64_t kind, std::span<const std::string_view> parts) {
  const std::string sizes = sizes_of(parts);
  Digester digester;
  digester.update(std::as_bytes(std::span(sizes)));
  for (const std::string_view part : parts) digester.update(std::as_bytes(std::span(part)));
  const FileDigest digest = digester.digest();
  RecordHead head{.kind = kind,
                  .number = records_,
                  .bytes = digest.bytes,
                  .synced = outlives_ == Outlives::kProcess ? kAlwaysCounts : synced_,
                  .digest = as_array(digest)};
  std::ranges::copy(kMagic, head.magic.begin());
  head.own_digest = as_array(digest_text(text_of(head)));
  std::string together(reinterpret_cast<const char*>(&head), sizeof head);
  together += sizes;
  for (const std::string_view part : parts) {
    if (together.size() + part.size() <= kSmall) {
      together += part;
      continue;
    }
    write(together);
    failpoint("record-half-written");
    together.clear();
    write(part);
  }
  write(together);
  bytes_ += sizeof head + digest.bytes;
  ++records_;
}

void RecordLog::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto written =
        uninterrupted([&] { return ::write(file_.get(), bytes.data(), std::min(bytes.size(), kLargestWrite)); });
    if (written <= 0) fail(written == 0 ? ENOSPC : errno, "write");
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

void RecordLog::fail(int error, std::string_view action) {
  static_cast<void>(::ftruncate(file_.get(), static_cast<off_t>(bytes_)) == 0);
  file_.reset();
  throw_storage_error(error, action, path_);
}

// Never retries a failed sync: the kernel may have dropped the written pages.
void RecordLog::sync() {
  if (outlives_ == Outlives::kProcess || synced_ == bytes_) return;
  if (uninterrupted([&] { return ::fdatasync(file_.get()); }) != 0) fail(errno, "write");
  synced_ = bytes_;
}

void RecordLog::publish() {
  check(!is_published_, "one call of RecordLog::publish");
  sync();
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail(errno, "create");
  is_published_ = true;
  if (outlives_ == Outlives::kMachine) sync_directory(path_.parent_path());
}

struct RecordLogReader::Head : RecordHead {};

RecordLogReader::RecordLogReader(std::filesystem::path file, std::string advice)
    : path_(std::move(file)), advice_(std::move(advice)), file_(open_for_reading(path_)) {
  struct stat info {};
  if (::fstat(file_.get(), &info) != 0) throw_storage_error(errno, "read", path_);
  size_ = static_cast<std::uint64_t>(info.st_size);
}

std::string RecordLogReader::read(std::uint64_t from, std::uint64_t bytes) const {
  std::string text(bytes, '\0');
  std::uint64_t done = 0;
  while (done < bytes) {
    const auto count = uninterrupted([&] {
      return ::pread(file_.get(), text.data() + done, std::min(bytes - done, kLargestWrite),
                     static_cast<off_t>(from + done));
    });
    if (count < 0) throw_storage_error(errno, "read", path_);
    if (count == 0) throw CheckpointError(path_.string(), " became shorter while it was read", advice_);
    done += static_cast<std::uint64_t>(count);
  }
  return text;
}

std::optional<LogRecord> RecordLogReader::next() {
  if (at_ == size_) return std::nullopt;
  Head head;
  if (size_ - at_ >= sizeof(RecordHead)) {
    std::memcpy(static_cast<RecordHead*>(&head), read(at_, sizeof(RecordHead)).data(), sizeof(RecordHead));
    if (auto record = read_record(head)) {
      at_ += sizeof(RecordHead) + head.bytes;
      ++records_;
      return record;
    }
  }
  if (records_ == 0 && !std::string_view(head.magic.data(), head.magic.size()).starts_with(kMagic.substr(0, 6)))
    throw CheckpointError(path_.string(), " is not a Sluice log, or its beginning is damaged", advice_);
  if (is_followed_by_committed_record())
    throw CheckpointError(path_.string(), " is damaged at byte ", at_, " of ", size_, advice_);
  return std::nullopt;
}

std::optional<LogRecord> RecordLogReader::read_record(const Head& head) const {
  const std::uint64_t left = size_ - at_ - sizeof(RecordHead);
  if (!is_intact(head) || head.number != records_ || head.bytes > left || head.bytes < sizeof(std::uint64_t))
    return std::nullopt;
  auto bytes = std::make_shared<const std::string>(read(at_ + sizeof(RecordHead), head.bytes));
  if (as_array(digest_text(*bytes)) != head.digest) return std::nullopt;
  LogRecord record{.kind = head.kind, .bytes = std::move(bytes)};
  const std::string_view all = *record.bytes;
  const std::uint64_t parts = number_at(all, 0);
  if (parts > kMostParts || (parts + 1) * sizeof(std::uint64_t) > all.size()) return std::nullopt;
  std::uint64_t from = (parts + 1) * sizeof(std::uint64_t);
  for (std::uint64_t part = 1; part <= parts; ++part) {
    const std::uint64_t size = number_at(all, part);
    if (size > all.size() - from) return std::nullopt;
    record.parts.push_back(all.substr(from, size));
    from += size;
  }
  return record;
}

// True if a later record shows that the damaged one was synced before. A later record alone does not show it, because
// the disk may write records out of order.
bool RecordLogReader::is_followed_by_committed_record() const {
  for (std::uint64_t from = at_ + 1; from < size_; from += kBlock) {
    const std::string block = read(from, std::min<std::uint64_t>(kBlock + sizeof(RecordHead), size_ - from));
    for (std::size_t found = block.find(kMagic); found < kBlock; found = block.find(kMagic, found + 1)) {
      if (found + sizeof(RecordHead) > block.size()) break;
      RecordHead head;
      std::memcpy(&head, block.data() + found, sizeof head);
      if (is_intact(head) && head.synced > at_) return true;
    }
  }
  return false;
}

}  // namespace sluice::storage
