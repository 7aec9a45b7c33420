// unnamed_file: opens a file without a name, so that nothing remains after the process ends. Uses O_TMPFILE, or else
// unlinks sluice-features-PID-HOST-XXXXXX at once; if the process is killed in between, a later remove_leftovers()
// removes it. Threads: any. Errors: an errno; nothing is thrown.
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
