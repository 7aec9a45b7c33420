// unnamed_file: opens a file without a name in its folder, so that nothing remains after the process ends in any way.
// Uses O_TMPFILE, or else unlinks the file sluice-features-PID-HOST-XXXXXX at once; if a process is killed in between,
// a later remove_leftovers() removes the empty file. Threads: any. Errors: an errno; nothing is thrown.
#pragma once

#include <filesystem>

#include "core/file_descriptor.h"

namespace sluice::data {

// Opens it for reading and writing by this user only. If it is not open, errno is the reason.
[[nodiscard]] FileDescriptor open_unnamed(const std::filesystem::path& folder);
[[nodiscard]] FileDescriptor open_and_unlink(const std::filesystem::path& folder);

// Removes files of ended processes of this machine. Files that cannot be read or removed stay.
void remove_leftovers(const std::filesystem::path& folder);

}  // namespace sluice::data
