#include "storage/scratch_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <system_error>

#include "core/concat.h"
#include "storage/files.h"

namespace sluice::storage {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kOurs = "sluice-";
constexpr auto kLock = "sluice-scratch.lock";

fs::path folder_of_all() {
  std::error_code error;
  fs::path all = fs::temp_directory_path(error);
  return error ? fs::path("/tmp") : all;
}

// The lock file gets its name only after it is locked. So a named file without a lock belongs to an ended process.
FileDescriptor hold(const fs::path& folder) {
  const fs::path unnamed = folder / concat(kLock, ".new");
  FileDescriptor lock(::open(unnamed.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600));
  if (!lock.is_open() || ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return FileDescriptor();
  if (::rename(unnamed.c_str(), (folder / kLock).c_str()) != 0) return FileDescriptor();
  return lock;
}

bool is_own_folder(const fs::path& path) {
  struct stat found {};
  return ::lstat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode) && found.st_uid == ::geteuid();
}

void remove_stale(const fs::path& all) {
  std::error_code error;
  for (fs::directory_iterator entry(all, error), end; !error && entry != end; entry.increment(error)) {
    const fs::path& folder = entry->path();
    if (!folder.filename().native().starts_with(kOurs) || !is_own_folder(folder)) continue;
    const FileDescriptor lock(::open((folder / kLock).c_str(), O_RDWR | O_CLOEXEC));
    if (!lock.is_open() || ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) continue;
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  }
}

}  // namespace

ScratchFolder::ScratchFolder(const std::string& name) {
  const fs::path all = folder_of_all();
  remove_stale(all);
  std::string pattern = all / concat(name, "-XXXXXX");
  if (::mkdtemp(pattern.data()) == nullptr) storage::throw_storage_error(errno, "make a folder in", all);
  path_ = pattern;
  lock_ = hold(path_);
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace sluice::storage
