#include "core/file_descriptor.h"

#include <unistd.h>

#include <utility>

namespace sluice {

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = other.release();
  }
  return *this;
}

int FileDescriptor::release() { return std::exchange(fd_, -1); }

void FileDescriptor::reset() {
  if (is_open()) ::close(fd_);
  fd_ = -1;
}

}  // namespace sluice
