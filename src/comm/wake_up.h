// wake_up: ends the wait of a thread that polls descriptors. Threads: any. Errors: OutOfMemoryError.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

#include "core/check.h"
#include "core/error.h"

namespace sluice::comm {

class WakeUp {
 public:
  WakeUp() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (fd_ < 0) too_many_open_files("cannot make an event descriptor");
  }
  ~WakeUp() { ::close(fd_); }
  WakeUp(const WakeUp&) = delete;
  WakeUp& operator=(const WakeUp&) = delete;

  [[nodiscard]] int fd() const { return fd_; }
  void give() const {
    const std::uint64_t one = 1;
    check(::write(fd_, &one, sizeof one) == sizeof one, "the event descriptor accepts a count");
  }
  void take() const {
    std::uint64_t count = 0;
    (void)!::read(fd_, &count, sizeof count);  // an empty counter is not an error
  }

 private:
  int fd_;
};

}  // namespace sluice::comm
