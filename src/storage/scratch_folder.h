// scratch_folder: a temporary folder of this process, removed with its contents. The next process that creates one
// removes folders left by killed processes. Threads: one. Errors: StorageError if it cannot be created.
#pragma once

#include <filesystem>
#include <string>

#include "core/file_descriptor.h"

namespace sluice::storage {

class ScratchFolder {
 public:
  // Creates the folder in the system's temporary folder (TMPDIR). name: begins with "sluice-".
  explicit ScratchFolder(const std::string& name);
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  FileDescriptor lock_;  // held for the object's lifetime; closed if the file system has no locks
};

}  // namespace sluice::storage
