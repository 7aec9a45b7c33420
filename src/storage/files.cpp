#include "storage/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <system_error>
#include <utility>

#include "core/check.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"

namespace sluice::storage {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxWrite = std::size_t{1} << 30;  // one write() takes at most 2 GiB - 4 KiB

// Also used for files outside of a run directory, such as `step --out` and `eval --logits`.
std::string_view advice(int error, std::string_view action) {
  const bool reads = action == "read" || action == "list";
  if (reads && (error == EACCES || error == EPERM)) return "change its permissions or use another account";
  switch (error) {
    case ENOSPC: return "free space on that disk or write elsewhere (a run: choose another --run-dir)";
    case EDQUOT: return "free some of your quota or write elsewhere (a run: choose another --run-dir)";
    case EROFS:
    case EACCES:
    case EPERM: return "choose a place that can be written (a run: another --run-dir)";
    case EIO: return "the disk reports a fault (see dmesg): use another disk";
    case EFBIG: return "raise the limit on file sizes (ulimit -f)";
    default: return "check the path";
  }
}

// Bytes that an unprivileged process may still write next to `path`; nothing if the file system does not report it.
std::optional<std::uint64_t> free_bytes(fs::path path) {
  struct statvfs info {};
  while (::statvfs(path.empty() ? "." : path.c_str(), &info) != 0) {
    if (path.empty() || path == path.parent_path()) return std::nullopt;
    path = path.parent_path();
  }
  if (info.f_blocks == 0) return std::nullopt;
  return std::uint64_t{info.f_bavail} * info.f_frsize;
}

bool sync_descriptor(int fd) {
  return uninterrupted([&] { return ::fsync(fd); }) == 0;
}

fs::path resolve_target(const fs::path& target) {
  std::error_code ignored;
  const auto status = fs::status(target, ignored);
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    throw StorageError(
        concat("cannot replace ", target.string(), ": it is not a regular file; give the name of a file"));
  }
  return fs::is_symlink(fs::symlink_status(target, ignored)) ? fs::weakly_canonical(target, ignored) : target;
}

}  // namespace

bool has_link(int fd) {
  struct stat info {};
  return ::fstat(fd, &info) != 0 || info.st_nlink > 0;
}

void throw_storage_error(int error, std::string_view action, const fs::path& path, std::uint64_t needed_bytes) {
  const std::string what = concat("cannot ", action, " ", path.string(), ": ", std::generic_category().message(error));
  if (is_file_limit(error)) too_many_open_files(what);
  std::string sizes;
  if (error == ENOSPC || error == EDQUOT || needed_bytes > 0) {
    if (needed_bytes > 0) sizes = concat("; needs ", human_bytes(needed_bytes));
    if (const auto left = free_bytes(path)) sizes += concat(sizes.empty() ? "; " : ", ", human_bytes(*left), " free");
  }
  throw StorageError(what, sizes, "; ", advice(error, action));
}

AtomicFile::AtomicFile(const fs::path& target, std::uint64_t expected_bytes)
    : target_(resolve_target(target)),
      temporary_(concat(target_.string(), ".tmp-", ::getpid())),
      expected_bytes_(expected_bytes),
      file_(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
  if (file_.get() < 0) throw_storage_error(errno, "create", target_, expected_bytes_);
}

AtomicFile::~AtomicFile() {
  if (file_.get() >= 0) ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  check(file_.get() >= 0, "AtomicFile::write before commit");
  while (!bytes.empty()) {
    const auto written =
        uninterrupted([&] { return ::write(file_.get(), bytes.data(), std::min(bytes.size(), kMaxWrite)); });
    if (written <= 0) {
      const int error = written == 0 ? ENOSPC : errno;
      static_cast<void>(::ftruncate(file_.get(), 0));  // so that the error reports the final free space
      throw_storage_error(error, "write", target_, expected_bytes_);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void AtomicFile::commit() {
  check(file_.get() >= 0, "one call of AtomicFile::commit");
  // Never retries a failed fsync: the kernel may have dropped the pages, so the whole file is lost.
  if (!sync_descriptor(file_.get())) throw_storage_error(errno, "write", target_, expected_bytes_);
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) throw_storage_error(errno, "replace", target_);
  if (::close(file_.release()) != 0 && errno != EINTR) throw_storage_error(errno, "write", target_, expected_bytes_);
  sync_directory(target_.parent_path());
}

void check_output(const char* option, const fs::path& out, const std::vector<fs::path>& inputs) {
  std::error_code ignored;
  for (const fs::path& input : inputs) {
    if (fs::equivalent(input, out, ignored))
      throw ConfigError(option, " ", out.string(), " is also an input; give the output another name");
  }
  if (fs::exists(out, ignored) && !fs::is_regular_file(out, ignored))
    throw StorageError(option, " ", out.string(), " is not a regular file; give the name of a file");
  const fs::path folder = fs::absolute(out).parent_path();
  if (fs::exists(folder / "state.json", ignored))
    throw ConfigError(option, " ", out.string(), " is inside a checkpoint; write elsewhere");
  if (::access(folder.c_str(), W_OK) != 0)
    throw StorageError(option, " ", out.string(), ": ", std::generic_category().message(errno),
                       "; name a file in a folder that may be written to");
}

void write_text_atomically(const fs::path& target, std::string_view text) {
  AtomicFile file(target, text.size());
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

void sync_directory(const fs::path& folder) {
  const FileDescriptor handle(::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // EINVAL: the file system cannot fsync directories and orders their changes itself.
  if (handle.get() < 0 || (!sync_descriptor(handle.get()) && errno != EINVAL)) {
    throw_storage_error(errno, "sync folder", folder);
  }
}

void make_directories(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error && !fs::is_directory(folder, error) && !error) error = std::make_error_code(std::errc::not_a_directory);
  if (error) throw_storage_error(error.value(), "create folder", folder);
}

FileDescriptor open_for_reading(const fs::path& file) {
  FileDescriptor handle(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a FIFO must not block
  struct stat info {};
  if (handle.get() >= 0 && ::fstat(handle.get(), &info) == 0 && S_ISREG(info.st_mode)) return handle;
  if (handle.get() >= 0) throw CheckpointError("cannot read ", file.string(), ": it is not a regular file");
  const int error = errno;
  if (error == EIO || is_file_limit(error)) throw_storage_error(error, "read", file);
  throw CheckpointError("cannot read ", file.string(), ": ", std::generic_category().message(error), "; ",
                        advice(error, "read"));
}

std::string read_text(const fs::path& file) {
  const FileDescriptor handle = open_for_reading(file);
  std::string text;
  std::string block(std::size_t{1} << 16, '\0');
  for (;;) {
    const auto count = uninterrupted([&] { return ::read(handle.get(), block.data(), block.size()); });
    if (count < 0) throw_storage_error(errno, "read", file);
    if (count == 0) return text;
    text.append(block, 0, static_cast<std::size_t>(count));
  }
}

void require_free_space(const fs::path& folder, std::uint64_t needed_bytes) {
  const auto left = free_bytes(folder);
  if (left && *left < needed_bytes) throw_storage_error(ENOSPC, "write", folder, needed_bytes);
}

}  // namespace sluice::storage
