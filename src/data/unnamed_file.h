// unnamed_file: opens a file that no folder lists, so that nothing of it is left however the process ends.
// O_TMPFILE where the file system has it; else a file named sluice-features-PID-HOST-XXXXXX that loses its name at
// once: a process killed between the two leaves it, empty, and remove_leftovers() of a later one takes it away.
// Threads: any. Errors: an errno; nothing is thrown.
#pragma once

#include <filesystem>

#include "core/file_descriptor.h"

namespace sluice::data {

// To read and write, for this user only. Not open: errno says why.
[[nodiscard]] FileDescriptor open_unnamed(const std::filesystem::path& folder);
// The way of file systems without O_TMPFILE, which open_unnamed() takes by itself.
[[nodiscard]] FileDescriptor open_and_unlink(const std::filesystem::path& folder);

// Removes the files of this machine's processes that are no more. What cannot be read or removed stays.
void remove_leftovers(const std::filesystem::path& folder);

}  // namespace sluice::data
