// folder_lock: keeps other processes out of a folder while this one uses it: an flock on its .lock, which holds host
// and process of the owner and stays behind. Threads: one. Errors: ConfigError when the folder is in use; StorageError
// when it cannot be written, or is to be locked and its file system has no locks.
#pragma once

#include <filesystem>
#include <string_view>

#include "storage/files.h"

namespace sluice::storage {

// What a file system without locks is.
enum class WithoutLocks { kWarning, kError };

// name: what the folder is ("run directory"); advice: what else to do than to wait. Locked until the answer goes.
[[nodiscard]] FileDescriptor lock_folder(const std::filesystem::path& folder, std::string_view name,
                                         std::string_view advice, WithoutLocks without = WithoutLocks::kWarning);

// Whether the process that locked it last is known to be gone: it was on this host, and no process has its number.
// False where nobody can tell.
[[nodiscard]] bool owner_is_gone(const std::filesystem::path& folder);

}  // namespace sluice::storage
