// folder_lock: keeps other processes out of a folder with an flock on its .lock file, which names the owner and stays
// after the lock ends. Threads: one. Errors: ConfigError if the folder is in use; StorageError if it cannot be written,
// or if a lock is required and the file system has none.
#pragma once

#include <filesystem>
#include <string_view>

#include "storage/files.h"

namespace sluice::storage {

enum class WithoutLocks { kWarning, kError };

// Locks the folder for the lifetime of the result. name: kind of folder; advice: alternative to waiting.
[[nodiscard]] FileDescriptor lock_folder(const std::filesystem::path& folder, std::string_view name,
                                         std::string_view advice, WithoutLocks without = WithoutLocks::kWarning);

// Returns true if the last owner ran on this host and no process has its id. Returns false if that is unknown.
[[nodiscard]] bool owner_is_gone(const std::filesystem::path& folder);

}  // namespace sluice::storage
