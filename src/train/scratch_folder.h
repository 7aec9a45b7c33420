// scratch_folder: a new folder for temporary files of this process, removed with all that is in it. Threads: one.
// Errors: StorageError where it cannot be made.
#pragma once

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "core/concat.h"
#include "storage/files.h"

namespace sluice::train {

class ScratchFolder {
 public:
  // In the system's folder for temporary files (TMPDIR).
  explicit ScratchFolder(const std::string& name) {
    std::error_code error;
    const std::filesystem::path all = std::filesystem::temp_directory_path(error);
    std::string pattern = (error ? std::filesystem::path("/tmp") : all) / concat(name, "-XXXXXX");
    if (::mkdtemp(pattern.data()) == nullptr) storage::throw_storage_error(errno, "make a folder in", all);
    path_ = pattern;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace sluice::train
