// thread_time: processor time of the calling thread, in nanoseconds since an arbitrary start. It stops while the thread
// waits or does not have a core, so it measures work on a busy machine. Wall time is in clock.h.
#pragma once

#include <ctime>

#include "core/clock.h"

namespace sluice {

[[nodiscard]] inline Nanoseconds thread_time_ns() {
  std::timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return Nanoseconds{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace sluice
