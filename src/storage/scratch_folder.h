// scratch_folder: a new folder for temporary files of this process, removed with all that is in it. What a process left
// that was killed is removed by the next one that makes such a folder. Threads: one.
// Errors: StorageError where it cannot be made.
#pragma once

#include <filesystem>
#include <string>

#include "core/file_descriptor.h"

namespace sluice::storage {

class ScratchFolder {
 public:
  // In the system's folder for temporary files (TMPDIR). name: begins with "sluice-".
  explicit ScratchFolder(const std::string& name);
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  FileDescriptor lock_;  // held as long as this process lives; none where the file system has no locks
};

}  // namespace sluice::storage
