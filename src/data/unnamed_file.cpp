#include "data/unnamed_file.h"

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/concat.h"
#include "core/host.h"
#include "core/log.h"

namespace sluice::data {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFilePrefix = "sluice-features-";

// The process of this machine that created a file of this name; empty for other names.
std::optional<pid_t> maker_of(std::string_view name) {
  if (!name.starts_with(kFilePrefix)) return std::nullopt;
  name.remove_prefix(kFilePrefix.size());
  pid_t pid = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
  if (error != std::errc() || pid <= 0) return std::nullopt;
  name.remove_prefix(static_cast<std::size_t>(end - name.data()));
  if (!name.starts_with(concat("-", host_name(), "-"))) return std::nullopt;
  return pid;
}

// This process's id counts as ended: a restarted container often gets the same id, and own files are already unnamed.
bool has_ended(pid_t pid) { return pid == ::getpid() || (::kill(pid, 0) != 0 && errno == ESRCH); }

}  // namespace

FileDescriptor open_unnamed(const fs::path& folder) {
  FileDescriptor file(::open(folder.c_str(), O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR));
  // EISDIR: the kernel does not support O_TMPFILE. EINVAL, ENOSYS: some FUSE file systems.
  const bool unknown = errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL || errno == ENOSYS;
  return file.is_open() || !unknown ? std::move(file) : open_and_unlink(folder);
}

FileDescriptor open_and_unlink(const fs::path& folder) {
  std::string name = folder / concat(kFilePrefix, ::getpid(), "-", host_name(), "-XXXXXX");
  FileDescriptor file(::mkostemp(name.data(), O_CLOEXEC));
  // Another cache of this process may have removed it as a leftover.
  if (file.is_open() && ::unlink(name.c_str()) != 0 && errno != ENOENT) file.reset();
  return file;
}

void remove_leftovers(const fs::path& folder) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const auto maker = maker_of(entry->path().filename().native());
    if (!maker || !has_ended(*maker)) continue;
    std::error_code failed;
    if (fs::remove(entry->path(), failed)) log_info("removed ", entry->path().string(), ", left by process ", *maker);
  }
}

}  // namespace sluice::data
