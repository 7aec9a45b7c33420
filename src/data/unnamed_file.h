// unnamed_file: opens a file that no folder lists, so that nothing of it is left however the process ends.
// O_TMPFILE where the file system has it; else a file named sluice-features-PID-HOST-XXXXXX that loses its name at
// once: a process killed between the two leaves it, empty, and remove_leftovers() of a later one takes it away.
// Threads: any. Errors: an errno; nothing is thrown.
#pragma once

#include <cerrno>
#include <filesystem>
#include <utility>

namespace sluice::data {

class OwnedDescriptor {
 public:
  OwnedDescriptor() = default;
  explicit OwnedDescriptor(int descriptor) : descriptor_(descriptor) {}
  ~OwnedDescriptor() { close(); }
  OwnedDescriptor(OwnedDescriptor&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  OwnedDescriptor& operator=(OwnedDescriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  void close();
  [[nodiscard]] int get() const { return descriptor_; }  // -1: none
  [[nodiscard]] bool is_open() const { return descriptor_ >= 0; }

 private:
  int descriptor_ = -1;
};

// To read and write, for this user only. Not open: errno says why.
[[nodiscard]] OwnedDescriptor open_unnamed(const std::filesystem::path& folder);
// The way of file systems without O_TMPFILE, which open_unnamed() takes by itself.
[[nodiscard]] OwnedDescriptor open_and_unlink(const std::filesystem::path& folder);

// Removes the files of this machine's processes that are no more. What cannot be read or removed stays.
void remove_leftovers(const std::filesystem::path& folder);

}  // namespace sluice::data
