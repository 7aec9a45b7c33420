#include "text/record_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"

namespace sluice::text {
namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 20;
constexpr std::string_view kSpaces = " \t\r";

bool is_blank(std::string_view line) { return line.find_first_not_of(kSpaces) == std::string_view::npos; }

[[noreturn]] void reject(const std::filesystem::path& file, int error) {
  const std::string what = concat(file.string(), ": cannot be read: ", std::generic_category().message(error));
  if (is_file_limit(error)) too_many_open_files(what);
  throw DataError(what, "; check the path and its permissions");
}

std::string_view advice(RecordKind kind) {
  switch (kind) {
    case RecordKind::kFile: return "cut it into documents with --documents line or --documents blank";
    case RecordKind::kCsvRow: return "split it, or close the quotes that it opens";
    default: return "split it";
  }
}

}  // namespace

RecordReader::RecordReader(std::filesystem::path file, RecordKind kind)
    : path_(std::move(file)),
      kind_(kind),
      file_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)),  // a FIFO must not block
      csv_(delimiter_of(kind)) {
  if (!file_.is_open()) reject(path_, errno);
  struct stat info {};
  if (::fstat(file_.get(), &info) != 0) reject(path_, errno);
  if (!S_ISREG(info.st_mode)) {
    throw DataError(
        path_.string(),
        ": is not a regular file; write its text to one, so that the command can go on in it after an interruption");
  }
  bytes_ = static_cast<std::uint64_t>(info.st_size);
  changed_ = std::int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
  std::string front(kByteOrderMark.size(), '\0');
  const auto count = uninterrupted([&] { return ::pread(file_.get(), front.data(), front.size(), 0); });
  if (count < 0) reject(path_, errno);
  seek(front == kByteOrderMark ? front.size() : 0, 0);
}

void RecordReader::seek(std::uint64_t offset, std::uint64_t records) {
  offset_ = offset;
  records_ = records;
  buffer_.clear();
  at_ = scanned_ = line_ = 0;
  ::lseek(file_.get(), static_cast<off_t>(offset), SEEK_SET);
}

bool RecordReader::fill() {
  buffer_.erase(0, std::exchange(at_, 0));
  const std::size_t before = buffer_.size();
  buffer_.resize(before + kReadBytes);
  const auto count = uninterrupted([&] { return ::read(file_.get(), buffer_.data() + before, kReadBytes); });
  if (count < 0) reject(path_, errno);
  buffer_.resize(before + static_cast<std::size_t>(count));
  return count > 0;
}

bool RecordReader::find_end(std::size_t& length, std::size_t& taken) {
  const std::string_view rest = std::string_view(buffer_).substr(at_);
  const auto found = [&](std::size_t end, std::size_t next) { return length = end, taken = next, true; };
  if (kind_ == RecordKind::kCsvRow || kind_ == RecordKind::kTsvRow) {
    while (scanned_ < rest.size()) {
      const std::size_t i = scanned_++;
      if (csv_.next(rest[i]) == CsvScanner::Is::kRowEnd) return found(i, i + 1);
    }
    return false;
  }
  if (kind_ == RecordKind::kFile) return false;
  for (std::size_t end = 0; (end = rest.find('\n', scanned_)) != std::string_view::npos; line_ = scanned_ = end + 1) {
    if (kind_ == RecordKind::kLine) return found(end, end + 1);
    if (is_blank(rest.substr(line_, end - line_))) return found(line_, end + 1);
  }
  scanned_ = rest.size();
  return false;
}

bool RecordReader::next(std::string& out) {
  std::size_t length = 0, taken = 0;
  while (!find_end(length, taken)) {
    if (buffer_.size() - at_ > kMostRecordBytes) {
      throw DataError(path_.string(), ": ", place(kind_, records_), " has more than ", human_bytes(kMostRecordBytes),
                      ", too much for one document; ", advice(kind_));
    }
    if (fill()) continue;
    length = taken = buffer_.size() - at_;
    if (length == 0) return false;
    break;
  }
  out.append(buffer_, at_, length);
  at_ += taken;
  offset_ += taken;
  ++records_;
  scanned_ = line_ = 0;
  csv_ = CsvScanner(delimiter_of(kind_));
  return true;
}

std::string RecordReader::place(RecordKind kind, std::uint64_t record) {
  switch (kind) {
    case RecordKind::kFile: return "its text";
    case RecordKind::kParagraph: return concat("paragraph ", record + 1);
    case RecordKind::kCsvRow:
    case RecordKind::kTsvRow: return concat("row ", record + 1);
    case RecordKind::kLine: break;
  }
  return concat("line ", record + 1);
}

}  // namespace sluice::text
