// thread_time: processor time of the calling thread in nanoseconds; it stops while the thread waits or has no core.
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
