#include "storage/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <sstream>
#include <string>
#include <system_error>

#include "core/concat.h"
#include "core/error.h"
#include "core/host.h"
#include "core/log.h"
#include "core/text.h"

namespace sluice::storage {
namespace {

std::string owner_line() { return concat("process ", ::getpid(), " on ", host_name(), "\n"); }

std::string read_owner(int fd) {
  std::array<char, 320> text{};
  const auto count = ::pread(fd, text.data(), text.size() - 1, 0);
  std::string owner(text.data(), count > 0 ? static_cast<std::size_t>(count) : 0);
  owner = first_line(owner);
  return owner.empty() ? "another process" : owner;
}

}  // namespace

FileDescriptor lock_folder(const std::filesystem::path& folder, std::string_view name, std::string_view advice,
                           WithoutLocks without) {
  const auto file = folder / ".lock";
  FileDescriptor lock(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (lock.get() < 0) throw_storage_error(errno, "create", file);
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) {
      throw ConfigError(name, " ", folder.string(), " is in use by ", read_owner(lock.get()),
                        "; wait for it to end or ", advice);
    }
    const std::string what = concat("cannot lock ", file.string(), ": ", std::generic_category().message(errno));
    if (without == WithoutLocks::kError)
      throw StorageError(what, ", so another process may still write to this ", name);
    log_warning(what, "; make sure that no other process uses this ", name);
  }
  const auto owner = owner_line();  // a full disk may leave it empty, which only shortens a message
  if (::ftruncate(lock.get(), 0) != 0 || ::pwrite(lock.get(), owner.data(), owner.size(), 0) < 0) {
    log_debug("cannot write the owner into ", file.string());
  }
  return lock;
}

bool owner_is_gone(const std::filesystem::path& folder) {
  const FileDescriptor lock(::open((folder / ".lock").c_str(), O_RDONLY | O_CLOEXEC));
  if (lock.get() < 0) return false;
  std::istringstream owner(read_owner(lock.get()));
  std::string process, on, host;
  ::pid_t number = 0;
  if (!(owner >> process >> number >> on >> host) || number <= 0 || host != host_name()) return false;
  return ::kill(number, 0) != 0 && errno == ESRCH;
}

}  // namespace sluice::storage
