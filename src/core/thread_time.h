// thread_time: processor time of the calling thread, in nanoseconds since an arbitrary start. It does not pass while
// others have the thread's core, nor while it waits: for measuring work on a machine that is not quiet.
// Not here: time as it passes for everybody (clock.h). Threads: each has its own.
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
