#include "storage/append_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "core/log.h"

namespace sluice::storage {

AppendFile::AppendFile(std::filesystem::path file, std::uint64_t keep_bytes)
    : path_(std::move(file)), file_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  struct stat info {};
  if (file_.get() < 0 || ::fstat(file_.get(), &info) != 0) throw_storage_error(errno, "open", path_);
  had_link_ = info.st_nlink > 0;
  const auto size = static_cast<std::uint64_t>(info.st_size);
  bytes_ = std::min(size, keep_bytes);
  if (bytes_ != size && ::ftruncate(file_.get(), static_cast<off_t>(bytes_)) != 0) {
    throw_storage_error(errno, "shorten", path_);
  }
}

AppendFile::~AppendFile() {
  if (dropped_ == 0) return;
  log_warning(path_.string(), ": ", dropped_, " records were dropped because the disk could not take them");
}

bool AppendFile::append(std::string_view record) {
  if (broken_) {
    ++dropped_;
    return false;
  }
  const ssize_t written = uninterrupted([&] { return ::write(file_.get(), record.data(), record.size()); });
  if (written == static_cast<ssize_t>(record.size())) {
    bytes_ += record.size();
    return true;
  }
  const int error = written < 0 ? errno : ENOSPC;
  if (written > 0) broken_ = ::ftruncate(file_.get(), static_cast<off_t>(bytes_)) != 0;
  drop(error);
  return false;
}

bool AppendFile::is_linked() const { return has_link(file_.get()) || !had_link_; }

void AppendFile::drop(int error) {
  if (dropped_++ > 0) return;
  log_warning("cannot write ", path_.string(), ": ", std::generic_category().message(error),
              "; training continues without these records; free space on that disk");
}

void AppendFile::sync() {
  if (::fsync(file_.get()) == 0 || errno == EINVAL || errno == EINTR) return;  // EINVAL: not a file on a disk
  log_warning("cannot sync ", path_.string(), ": ", std::generic_category().message(errno));
}

}  // namespace sluice::storage
